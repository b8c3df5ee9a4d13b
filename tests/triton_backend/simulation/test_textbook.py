"""Queues that textbooks solve: a step is a service, with one slot and answers of one token."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from statistics import fmean

import pytest

from builder.artifact.config import Limits
from triton_backend.config import EngineConfig
from triton_backend.simulation.arrivals import Arrival, at_rate
from triton_backend.simulation.cost import CostModel
from triton_backend.simulation.run import Machine, play

LIMITS = Limits(
    max_seq_len=4096, max_num_seqs=1, max_num_tokens=4096, max_logit_rows=1, num_blocks=300
)
TOKEN_S = 1e-5
MACHINE = Machine(
    LIMITS,
    16,
    CostModel(step_s=0.0, token_s=TOKEN_S, context_s=0.0),
    EngineConfig(prefix_reuse=False, max_waiting=100_000),
)
SHORT, LONG = 20, 200


def mean_queue_s(
    lengths: Callable[[Random], int], load: float, *, policy: str = "fcfs"
) -> dict[int, float]:
    """Give the mean time in the queue of each length of prompt, in a Poisson stream at a load."""
    random, now = Random(5), 0.0  # noqa: S311
    arrivals = []
    for _ in range(4000):
        now += random.expovariate(1.0)
        arrivals.append(Arrival(now, lengths(random), 1))
    per_s = load / (TOKEN_S * fmean(arrival.num_prompt for arrival in arrivals))
    config = replace(MACHINE.config, policy=policy)
    served = play(at_rate(arrivals, per_s), replace(MACHINE, config=config)).served
    return {
        length: fmean(
            each.queue_s
            for each in served
            if each.arrival.num_prompt == length and each.queue_s is not None
        )
        for length in sorted({arrival.num_prompt for arrival in arrivals})
    }


SLOW_LOADS = [pytest.param(load, marks=pytest.mark.slow) for load in (0.3, 0.8)]


@pytest.mark.parametrize("load", [0.6, *SLOW_LOADS])
def test_equal_requests_wait_as_long_as_in_an_m_d_1_queue(load: float) -> None:
    found = mean_queue_s(lambda _: LONG, load)[LONG]
    assert found == pytest.approx(TOKEN_S * LONG * load / (2 * (1 - load)), rel=0.08)


def test_first_come_first_served_waits_as_pollaczek_and_khinchine_say() -> None:
    load = 0.7
    found = mean_queue_s(lambda random: random.choice((SHORT, LONG)), load)
    # Load times the mean rest of the service under way, over what is left of the server.
    rest = (SHORT**2 + LONG**2) / (2 * (SHORT + LONG))
    for waited in found.values():
        assert waited == pytest.approx(TOKEN_S * load * rest / (1 - load), rel=0.12)


def test_the_shortest_first_wait_as_cobham_says() -> None:
    load = 0.7
    found = mean_queue_s(lambda random: random.choice((SHORT, LONG)), load, policy="srpt")
    rest = load * (SHORT**2 + LONG**2) / (2 * (SHORT + LONG))
    of_short = load * SHORT / (SHORT + LONG)
    assert found[SHORT] == pytest.approx(TOKEN_S * rest / (1 - of_short), rel=0.1)
    assert found[LONG] == pytest.approx(TOKEN_S * rest / ((1 - of_short) * (1 - load)), rel=0.12)
