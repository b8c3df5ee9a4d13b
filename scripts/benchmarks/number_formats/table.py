"""The table of formats, for people."""

from typing import Any

from rich.console import Console
from rich.table import Column, Table

MEBIBYTE = 1 << 20
NAME = "engine"


def show(report: dict[str, Any], console: Console) -> None:
    """Print what each format takes, and what it loses on each text."""
    costs = Table(
        Column(NAME, no_wrap=True),
        "compile s",
        "peak MiB",
        "calibrate s",
        "peak MiB",
        "MiB",
        "bits",
    )
    for engine in report["engines"]:
        if "compilation" in engine:
            costs.add_row(
                engine["name"],
                *_cost(engine["compilation"]),
                *_cost(engine["calibration"]),
                *_size(engine),
            )
    console.print(costs)
    for text in report["texts"]:
        losses = Table(
            Column(NAME, no_wrap=True),
            "perplexity",
            "over float32's",
            "KL mean",
            "KL p99",
            "agreement",
        )
        for engine in report["engines"]:
            losses.add_row(engine["name"], *_losses(engine["figures"][text]))
        console.print(f"at most {report['tokens']} tokens of {text}")
        console.print(losses)


def _cost(cost: dict[str, Any] | None) -> tuple[str, str]:
    if cost is None:
        return "", ""
    return f"{cost['wall_s']:.0f} ({cost['cpu_s']:.0f} CPU)", f"{cost['peak_bytes'] / MEBIBYTE:.0f}"


def _size(engine: dict[str, Any]) -> tuple[str, str]:
    return f"{engine['artifact_bytes'] / MEBIBYTE:.0f}", f"{engine['bits_per_weight']:.2f}"


def _losses(figures: dict[str, float]) -> tuple[str, ...]:
    return (
        f"{figures['perplexity']:.2f}",
        f"{figures['perplexity_ratio']:.3f}",
        f"{figures['kl_mean']:.4f}",
        f"{figures['kl_p99']:.3f}",
        f"{figures['agreement']:.3f}",
    )
