"""A picture of the medians: one panel per figure, one bar per engine, ours in colour."""

from collections.abc import Collection, Mapping
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from peer_engines.comparison import METRICS, Figures

COLUMNS = 5
OURS, OTHERS = "tab:orange", "tab:gray"


def draw_chart(path: Path, all_medians: Mapping[str, Figures], ours: Collection[str]) -> None:
    """Write a PNG."""
    mpl.rcParams["font.size"] = 8
    names = list(all_medians)[::-1]
    rows = -(-len(METRICS) // COLUMNS)
    figure = Figure(figsize=(3.2 * COLUMNS, (0.3 * len(names) + 1) * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, sharey=True).flat
    for metric, panel in zip(METRICS, panels, strict=False):
        values = [all_medians[name][metric.key] for name in names]
        colours = [OURS if name in ours else OTHERS for name in names]
        bars = panel.barh(names, values, color=colours)
        panel.bar_label(bars, fmt="{:g}", padding=2, fontsize=7)
        panel.margins(x=0.25)
        panel.set_title(f"{metric.label} ({'more' if metric.more_is_better else 'less'} is better)")
    figure.savefig(path, dpi=120)
