"""Measuring an engine whose costs are known finds them, within its limits."""

from dataclasses import astuple, replace

import pytest

from builder.artifact.config import Limits
from triton_backend.simulation.cost import CostModel, VirtualClock
from triton_backend.simulation.executor import CountdownExecutor
from triton_backend.simulation.measure import measure_cost, num_batches

LIMITS = Limits(
    max_seq_len=512, max_num_seqs=8, max_num_tokens=128, max_logit_rows=8, num_blocks=300
)
COST = CostModel(step_s=0.01, token_s=0.002, context_s=3e-5)


def measure(limits: Limits) -> tuple[CostModel, list[int]]:
    clock = VirtualClock()
    executor = CountdownExecutor(limits, block_size=16, cost=COST, clock=clock)
    heard: list[int] = []
    cost = measure_cost(executor, clock=clock, on_batch=heard.append)
    assert sum(heard) == num_batches(executor)
    return cost, heard


def test_known_costs_are_found() -> None:
    cost, heard = measure(LIMITS)
    assert astuple(cost) == pytest.approx(astuple(COST), rel=1e-6)
    assert len(heard) > 5


@pytest.mark.parametrize(
    "limits",
    [
        replace(LIMITS, max_seq_len=16, num_blocks=3),
        replace(LIMITS, max_num_seqs=1, max_logit_rows=1),
        replace(LIMITS, num_blocks=4, max_seq_len=40),
        replace(LIMITS, max_seq_len=9, max_num_tokens=8, num_blocks=2),
    ],
    ids=["a small pool", "one slot", "short sequences", "one block"],
)
def test_no_batch_is_beyond_the_limits(limits: Limits) -> None:
    cost, _ = measure(limits)
    assert cost.step_s + cost.token_s > 0
