"""Medians over rounds, and ours over the best of the others for each figure, held against the bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.table import Table

Figures = dict[str, float]


TITLE = """medians: tokens/s of prompts and of 1 to 32 answers, ms to the first token of 512 cold and with 448 remembered,
peak memory with and without clean pages of files, seconds from loading to the first token"""


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure, and what ours must be relative to the best peer's."""

    key: str
    label: str
    more_is_better: bool
    bar: float | None = None
    moonshot: float | None = None
    bar_int4: float | None = None
    """Where a smaller weight must reach more."""
    is_absolute: bool = False
    """The bar is for the figure itself."""

    def best(self, values: Mapping[str, float]) -> str:
        """Give the name with the best value."""
        choose = max if self.more_is_better else min
        return choose(values, key=lambda name: values[name])

    def is_met(self, value: float, bar: float) -> bool:
        return value >= bar if self.more_is_better else value <= bar


METRICS = (
    Metric("prefill_tps", "prefill", more_is_better=True, bar=1.2, moonshot=1.6),
    Metric("ttft_cold_ms", "cold ms", more_is_better=False),
    Metric("ttft_warm_ms", "warm ms", more_is_better=False, bar=0.6, moonshot=0.4),
    Metric("decode_1", "decode 1", more_is_better=True, bar=2.0, moonshot=3.0, bar_int4=2.6),
    Metric("decode_4", "decode 4", more_is_better=True, bar=2.5, moonshot=3.5),
    Metric("decode_16", "decode 16", more_is_better=True, bar=2.0, moonshot=3.5),
    Metric("decode_32", "decode 32", more_is_better=True, bar=2.0, moonshot=3.5),
    Metric("rss_mb", "peak MB", more_is_better=False),
    Metric("own_mb", "own MB", more_is_better=False, bar=0.6, moonshot=0.4),
    Metric("load_s", "load s", more_is_better=False, bar=0.3, moonshot=0.1, is_absolute=True),
)


@dataclass(frozen=True, slots=True)
class Ratio:
    """How one figure of ours stands."""

    label: str
    value: float
    """Ours over the best peer's, or the figure itself where the bar is for that."""
    best_peer: str
    best_value: float
    bar: float | None
    moonshot: float | None
    met: bool | None


def flat(report: Mapping[str, Any]) -> Figures:
    """Give the figures of one worker by the keys of `METRICS`."""
    decode = {f"decode_{size}": value for size, value in report["decode_tps"].items()}
    return {metric.key: float({**report, **decode}[metric.key]) for metric in METRICS}


def medians(rounds: Sequence[Mapping[str, Any]]) -> Figures:
    """Give the median of each figure."""
    all_figures = [flat(report) for report in rounds]
    return {
        metric.key: round(median(figures[metric.key] for figures in all_figures), 3)
        for metric in METRICS
    }


def ratios(ours: Figures, peers: Mapping[str, Figures], *, is_int4: bool) -> list[Ratio]:
    """Hold the medians of one artifact against those of all peers."""
    found = []
    for metric in METRICS:
        values = {name: figures[metric.key] for name, figures in peers.items()}
        best = metric.best(values)
        mine = ours[metric.key]
        value = mine if metric.is_absolute else mine / values[best]
        bar = metric.bar_int4 if is_int4 and metric.bar_int4 else metric.bar
        met = None if bar is None else metric.is_met(value, bar)
        found.append(
            Ratio(metric.label, round(value, 3), best, values[best], bar, metric.moonshot, met)
        )
    return found


def figure_table(all_medians: Mapping[str, Figures], failures: Mapping[str, str]) -> Table:
    """Lay out the medians, and name what did not run."""
    table = Table("engine", *(metric.label for metric in METRICS), title=TITLE)
    for name, figures in all_medians.items():
        table.add_row(name, *(f"{figures[metric.key]:.4g}" for metric in METRICS))
    for name, reason in failures.items():
        table.add_row(name, f"failed: {reason}")
    return table


def ratio_table(name: str, found: Sequence[Ratio]) -> Table:
    """Lay out how one artifact stands."""
    table = Table(
        "figure", "ours / best", "best peer", "its value", "bar", "moonshot", "", title=name
    )
    words = {None: "", True: "met", False: "missed"}
    for ratio in found:
        bars = ("-" if bar is None else f"{bar:g}" for bar in (ratio.bar, ratio.moonshot))
        best = (ratio.best_peer, f"{ratio.best_value:g}")
        table.add_row(ratio.label, f"{ratio.value:g}", *best, *bars, words[ratio.met])
    return table
