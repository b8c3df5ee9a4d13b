"""Percentiles, goodput and capacity of runs that can be worked out by hand."""

import pytest

from builder.artifact.config import Limits
from builder.errors import UserError
from triton_backend.config import EngineConfig
from triton_backend.simulation.arrivals import Arrival
from triton_backend.simulation.capacity import find_capacity
from triton_backend.simulation.cost import CostModel
from triton_backend.simulation.figures import Slo, figures_of, percentiles
from triton_backend.simulation.run import Machine, play
from triton_backend.simulation.sweep import Grid, sweep

LIMITS = Limits(max_seq_len=64, max_num_seqs=1, max_num_tokens=64, max_logit_rows=1, num_blocks=65)
MACHINE = Machine(LIMITS, 4, CostModel(1.0, 0.0, 0.0), EngineConfig())
ARRIVALS = [Arrival(0.0, 4, 2), Arrival(1.0, 4, 2), Arrival(2.0, 4, 2), Arrival(10.0, 4, 2)]
"""Served from 0 to 2, 2 to 4, 4 to 6 and 10 to 12: the first tokens come after 1, 2, 3 and 1 s."""


def test_a_percentile_is_a_value_that_occurred() -> None:
    assert percentiles(range(1, 101)) == {50: 50, 95: 95, 99: 99}
    assert percentiles([3.0, 1.0]) == {50: 1.0, 95: 3.0, 99: 3.0}
    assert percentiles([7.0]) == {50: 7.0, 95: 7.0, 99: 7.0}
    assert percentiles([]) == {}


def test_figures_of_four_requests() -> None:
    figures = figures_of(play(ARRIVALS, MACHINE), Slo(ttft_s=2.0, itl_s=1.0), skip=0.0)
    assert figures.ttft_s == {50: 1.0, 95: 3.0, 99: 3.0}
    assert figures.itl_s[99] == figures.longest_gap_s[99] == 1.0
    assert figures.end_to_end_s == {50: 2.0, 95: 4.0, 99: 4.0}
    assert figures.mean_queue_s == (0 + 1 + 2 + 0) / 4
    assert (figures.num_requests, figures.num_complete) == (4, 4)
    assert figures.offered_per_s == pytest.approx(0.4)
    assert figures.tokens_per_s == pytest.approx(8 / 12)
    assert figures.busy_share == pytest.approx(8 / 12)
    assert figures.goodput_share == 0.75
    assert figures.goodput_per_s == pytest.approx(3 / 12)


def test_the_first_requests_can_be_left_out() -> None:
    figures = figures_of(play(ARRIVALS, MACHINE), Slo(2.0, 1.0), skip=0.5)
    assert figures.num_requests == 2
    assert figures.ttft_s == {50: 1.0, 95: 3.0, 99: 3.0}
    assert figures.goodput_share == 0.5


def test_no_figure_counts_what_is_left_out() -> None:
    limits = Limits(64, 2, 64, 2, num_blocks=10)
    machine = Machine(limits, 4, CostModel(1.0, 0.0, 0.0), EngineConfig())
    squeezed = [Arrival(0.0, 8, 20), Arrival(0.0, 8, 20)]
    shared = [Arrival(at_s, 20, 1, prefix="a", num_prefix=16) for at_s in (100.0, 110.0)]
    played = play([*squeezed, *shared], machine)
    whole, later = (figures_of(played, Slo(9, 9), skip=skip) for skip in (0.0, 0.5))
    assert whole.num_preemptions > 0
    assert whole.hit_rate == pytest.approx(16 / 56)
    assert later.num_preemptions == 0
    assert later.hit_rate == pytest.approx(16 / 40)
    # Two steps of a second, from 100 s to 111 s.
    assert later.busy_share == pytest.approx(2 / 11)


@pytest.mark.parametrize(
    ("slo", "good"), [(Slo(0.5, 9), 0.0), (Slo(9, 0.5), 0.0), (Slo(3, 1), 1.0)]
)
def test_goodput_keeps_both_bounds(slo: Slo, good: float) -> None:
    assert figures_of(play(ARRIVALS, MACHINE), slo, skip=0.0).goodput_share == good


def test_capacity_is_what_a_full_engine_completes() -> None:
    # One request takes two steps of a second, one after the other.
    assert find_capacity([Arrival(float(n), 4, 2) for n in range(50)], MACHINE) == pytest.approx(
        0.5
    )
    assert find_capacity(ARRIVALS[:1], MACHINE) == pytest.approx(0.5)


def test_a_machine_that_nothing_fits_has_no_capacity() -> None:
    with pytest.raises(UserError, match=r"^request 1: "):
        find_capacity([Arrival(0.0, 64, 1)], MACHINE)


def test_a_sweep_plays_the_same_requests_at_each_load_under_each_policy() -> None:
    over: list[int] = []
    grid = Grid(("fcfs", "srpt"), (0.5, 1.0, 2.0), 0.5, Slo(2.0, 1.0), 0.0)
    cells = list(sweep(ARRIVALS, MACHINE, grid, on_over=over.append))
    assert [(cell.load, cell.policy) for cell in cells] == [
        (load, policy) for load in grid.loads for policy in grid.policies
    ]
    assert [cell.rate_per_s for cell in cells] == [0.25, 0.25, 0.5, 0.5, 1.0, 1.0]
    assert sum(over) == 24
    queues = [cell.figures.mean_queue_s for cell in cells if cell.policy == "fcfs"]
    assert queues == sorted(queues)
    assert queues[0] < queues[-1]
