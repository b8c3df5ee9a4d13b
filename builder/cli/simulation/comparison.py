"""What a sweep of simulations found, as a table for people and as JSON for programs."""

import json
from collections.abc import Mapping, Sequence

from triton_backend.simulation.sweep import Cell

COLUMNS = (
    "load", "policy", "req/s", "TTFT p50", "p95", "p99", "ITL p95", "gap p99", "tokens/s",
    "goodput/s", "in SLO", "refused", "late",
)  # fmt: skip


def table_lines(cells: Sequence[Cell]) -> list[str]:
    """Give the lines of a table with one row per load and policy."""
    rows = [COLUMNS, *map(_row, cells)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    return [
        "  ".join(
            cell.ljust(width) if name == "policy" else cell.rjust(width)
            for name, cell, width in zip(COLUMNS, row, widths, strict=True)
        ).rstrip()
        for row in rows
    ]


def verdict_lines(cells: Sequence[Cell]) -> list[str]:
    """Say per load how p95 TTFT of each policy compares with that of the first; leave out who served nobody."""
    lines = []
    for load in dict.fromkeys(cell.load for cell in cells):
        own = [cell for cell in cells if cell.load == load and cell.figures.ttft_s]
        told = [
            f"{cell.policy} {_seconds(cell.figures.ttft_s, 95)}"
            f" ({cell.figures.ttft_s[95] / own[0].figures.ttft_s[95]:.2f}x)"
            for cell in own
        ]
        lines.append(f"p95 TTFT at load {load:g}: {', '.join(told) or 'nobody was served'}")
    return lines


def as_json(settings: Mapping[str, object], cells: Sequence[Cell]) -> str:
    """Give settings and figures as JSON; the same settings give the same text."""
    runs = [
        {
            "policy": cell.policy,
            "load": cell.load,
            "rate_per_s": cell.rate_per_s,
            **cell.figures.as_json(),
        }
        for cell in cells
    ]
    return json.dumps({"settings": settings, "runs": runs}, indent=2) + "\n"


def _row(cell: Cell) -> tuple[str, ...]:
    figures = cell.figures
    return (
        f"{cell.load:g}",
        cell.policy,
        f"{cell.rate_per_s:.3g}",
        *(_seconds(figures.ttft_s, level) for level in (50, 95, 99)),
        _seconds(figures.itl_s, 95),
        _seconds(figures.longest_gap_s, 99),
        f"{figures.tokens_per_s:.1f}",
        f"{figures.goodput_per_s:.3g}",
        f"{figures.goodput_share:.0%}",
        f"{figures.num_refused}",
        f"{figures.num_timed_out}",
    )


def _seconds(percentiles: Mapping[int, float], level: int) -> str:
    """Give a percentile with three digits; a dash where there is none."""
    if level not in percentiles:
        return "-"
    value = percentiles[level]
    return f"{value * 1000:.3g} ms" if value < 0.9995 else f"{value:.3g} s"
