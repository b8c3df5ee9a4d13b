"""Tables and verdicts, also where nobody was served."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from builder.artifact.config import Limits
from builder.cli.simulation.comparison import as_json, table_lines, verdict_lines
from builder.cli.simulation.plot import draw
from triton_backend.config import EngineConfig
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.cost import CostModel
from triton_backend.simulation.figures import Slo, figures_of
from triton_backend.simulation.run import Machine, play
from triton_backend.simulation.sweep import Cell

LIMITS = Limits(max_seq_len=64, max_num_seqs=1, max_num_tokens=64, max_logit_rows=1, num_blocks=65)
MACHINE = Machine(LIMITS, 4, CostModel(1.0, 0.0, 0.0), EngineConfig(), deadline_s=0.4)
ARRIVALS = [Arrival(0.0, 4, 2), Arrival(0.5, 4, 2)]
"""The first gets a token in the step that begins in time; the deadline of the second passes while it waits."""


def cell(policy: str, *, skip: float) -> Cell:
    return Cell(policy, 1.0, 0.25, figures_of(play(ARRIVALS, MACHINE), Slo(1, 1), skip=skip))


def test_a_row_has_a_dash_where_there_is_no_latency() -> None:
    header, served, late = table_lines([cell("fcfs", skip=0.0), cell("srpt", skip=0.5)])
    assert header.split()[-3:] == ["SLO", "refused", "late"]
    assert served.split() == [
        *("1", "fcfs", "0.25", "1", "s", "1", "s", "1", "s", "-", "-", "1.0", "0", "0%", "0", "2"),
    ]
    assert late.split() == [
        *("1", "srpt", "0.25", "-", "-", "-", "-", "-", "0.0", "0", "0%", "0", "1"),
    ]
    assert len(header) == len(served) == len(late)


def test_the_verdict_compares_with_the_first_who_served_anybody() -> None:
    served, late = cell("fcfs", skip=0.0), cell("fair", skip=0.5)
    assert verdict_lines([late, served, replace(served, policy="srpt")]) == [
        "p95 TTFT at load 1: fcfs 1 s (1.00x), srpt 1 s (1.00x)"
    ]
    assert verdict_lines([late]) == ["p95 TTFT at load 1: nobody was served"]


def test_json_has_no_latency_where_there_is_none() -> None:
    (run,) = json.loads(as_json({}, [cell("fcfs", skip=0.5)]))["runs"]
    assert run["ttft_s"] == {}
    assert (run["num_timed_out"], run["num_complete"], run["goodput_per_s"]) == (1, 0, 0)


def test_a_plot_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    for suffix in ("png", "svg", "pdf"):
        path = tmp_path / f"out.{suffix}"
        draw([cell("fcfs", skip=0.5)], path, title="late")
        assert path.stat().st_size > 1000
