"""Draws a sweep of simulations as a picture: latency and goodput over load, one line per policy.

matplotlib comes with the extra `plot`, and is imported only here.
"""

import importlib.util
from collections.abc import Sequence
from pathlib import Path

from builder.errors import UserError
from triton_backend.simulation.sweep import Cell

FORMATS = (".png", ".svg", ".pdf")


def refuse_plot(path: Path) -> None:
    """Refuse to draw before any work is done.

    Raises:
        UserError: the file's format is not one of ours, or matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise UserError(f"--plot {path} must end with one of {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise UserError("--plot needs matplotlib; install forerun[plot], or leave --plot out")


def draw(cells: Sequence[Cell], path: Path, *, title: str) -> None:
    """Draw p95 TTFT, goodput and throughput over load into `path`."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra, and slow to import

    mpl.use("agg")
    from matplotlib.figure import Figure  # noqa: PLC0415

    figure = Figure(figsize=(13, 4), layout="constrained")
    latency, goodput, tokens = figure.subplots(1, 3)
    for policy in dict.fromkeys(cell.policy for cell in cells):
        own = [cell for cell in cells if cell.policy == policy]
        loads = [cell.load for cell in own]
        known = [cell for cell in own if cell.figures.ttft_s]
        latency.plot(
            [cell.load for cell in known],
            [cell.figures.ttft_s[95] for cell in known],
            marker="o",
            label=policy,
        )
        goodput.plot(loads, [cell.figures.goodput_per_s for cell in own], marker="o", label=policy)
        tokens.plot(loads, [cell.figures.tokens_per_s for cell in own], marker="o", label=policy)
    latency.set(title="p95 TTFT", ylabel="s", yscale="log")
    latency.yaxis.set_major_formatter("{x:g}")
    latency.yaxis.set_minor_formatter("{x:g}")
    goodput.set(title="Goodput under the SLO", ylabel="requests/s", ylim=(0, None))
    tokens.set(title="Throughput", ylabel="generated tokens/s", ylim=(0, None))
    for axes in (latency, goodput, tokens):
        axes.set_xlabel("load (1 = capacity)")
        axes.grid(visible=True, alpha=0.3)
        axes.legend()
    figure.suptitle(title)
    # Without a date and a version in it, the same figures give the same file.
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(path, dpi=120, metadata=metadata[path.suffix.lower()])
