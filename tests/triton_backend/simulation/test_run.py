"""Small runs worked out by hand. A step takes one second, whatever is in it, unless a test says otherwise."""

from dataclasses import replace

import pytest

from builder.artifact.config import Limits
from builder.errors import UserError
from triton_backend.config import EngineConfig
from triton_backend.reasons import Refusal
from triton_backend.request import FinishReason
from triton_backend.simulation.arrivals import Arrival, draw_arrivals
from triton_backend.simulation.cost import CostModel
from triton_backend.simulation.lengths import read_lengths
from triton_backend.simulation.run import Machine, Played, play

LIMITS = Limits(max_seq_len=64, max_num_seqs=4, max_num_tokens=32, max_logit_rows=4, num_blocks=65)
MACHINE = Machine(LIMITS, 4, CostModel(step_s=1.0, token_s=0.0, context_s=0.0), EngineConfig())
ONE_AT_A_TIME = replace(MACHINE, limits=replace(LIMITS, max_num_seqs=1))
PAIR = [Arrival(0.0, 4, 3), Arrival(0.5, 4, 2)]


def first_and_last(played: Played) -> list[tuple[float | None, float | None]]:
    return [(each.first_s, each.last_s) for each in played.served]


def test_two_requests_share_steps() -> None:
    played = play(PAIR, MACHINE)
    # The second arrives during the first step, and is part of the next.
    assert first_and_last(played) == [(1.0, 3.0), (2.0, 3.0)]
    assert [each.queue_s for each in played.served] == [0.0, 0.5]
    assert [each.ttft_s for each in played.served] == [1.0, 1.5]
    assert [each.itl_s for each in played.served] == [1.0, 1.0]
    assert (played.busy_s, played.end_s, played.metrics.num_steps) == (3.0, 3.0, 3)


def test_with_one_slot_the_second_waits_for_the_first() -> None:
    played = play(PAIR, ONE_AT_A_TIME)
    assert first_and_last(played) == [(1.0, 3.0), (4.0, 5.0)]
    assert played.served[1].queue_s == 2.5


def test_an_idle_engine_waits_for_the_next_arrival() -> None:
    played = play([Arrival(0.0, 4, 1), Arrival(10.0, 4, 1)], MACHINE)
    assert first_and_last(played) == [(1.0, 1.0), (11.0, 11.0)]
    assert played.busy_s == 2.0


def test_a_long_prompt_takes_as_many_steps_as_the_budget_says() -> None:
    machine = replace(MACHINE, limits=replace(LIMITS, max_num_tokens=8))
    played = play([Arrival(0.0, 20, 2)], machine)
    assert first_and_last(played) == [(3.0, 4.0)]
    assert played.metrics.num_computed_prompt_tokens == 20
    assert played.metrics.num_computed_tokens == 21


def test_tokens_and_context_cost_time() -> None:
    machine = replace(MACHINE, cost=CostModel(step_s=1.0, token_s=0.1, context_s=0.01))
    played = play([Arrival(0.0, 4, 2)], machine)
    assert first_and_last(played)[0] == pytest.approx((1 + 0.4 + 0.10, 1.5 + 1 + 0.1 + 0.05))


def test_a_request_that_comes_while_the_queue_is_full_is_refused() -> None:
    machine = replace(ONE_AT_A_TIME, config=EngineConfig(max_waiting=1))
    played = play([Arrival(0.0, 4, 1)] * 4, machine)
    assert [each.finish_reason for each in played.served] == [
        FinishReason.STOP,
        FinishReason.STOP,
        None,
        None,
    ]
    assert played.metrics.refusals == {Refusal.QUEUE_FULL: 2}


@pytest.mark.parametrize(
    ("arrival", "reason"),
    [
        (Arrival(0.0, 60, 5), "max_seq_len"),
        (Arrival(0.0, 4, 1, priority=2**40), "priority"),
        (Arrival(0.0, 4, 10**6), "max_seq_len"),
    ],
)
def test_a_request_that_can_never_be_served_ends_the_run_by_its_name(
    arrival: Arrival, reason: str
) -> None:
    with pytest.raises(UserError, match=rf"^request 2: .*{reason}"):
        play([Arrival(0.0, 60, 4), arrival], MACHINE)
    with pytest.raises(UserError, match=r"^trace line 7: "):
        play([replace(arrival, place="trace line 7")], MACHINE)


def test_a_deadline_counts_from_the_arrival() -> None:
    played = play(PAIR, replace(ONE_AT_A_TIME, deadline_s=3.0))
    first, second = played.served
    assert first.is_complete
    # It has until 3.5: the step at 3 still serves it, the one at 4 does not.
    assert second.finish_reason is FinishReason.TIMEOUT
    assert (second.num_tokens, second.ttft_s, played.end_s) == (1, 3.5, 4.0)


def test_an_answer_ends_where_its_arrival_says_also_when_the_engine_is_not_told() -> None:
    played = play(PAIR, replace(MACHINE, lengths_known=False))
    assert [each.finish_reason for each in played.served] == [FinishReason.STOP] * 2
    assert [each.num_tokens for each in played.served] == [3, 2]


def test_a_shared_prefix_is_computed_once() -> None:
    arrivals = [
        Arrival(0.0, 20, 1, prefix="a", num_prefix=16),
        Arrival(5.0, 20, 1, prefix="a", num_prefix=16),
        Arrival(9.0, 20, 1, prefix="b", num_prefix=16),
        Arrival(12.0, 20, 1),
    ]
    assert play(arrivals, MACHINE).metrics.num_hit_tokens == 16
    without = replace(MACHINE, config=EngineConfig(prefix_reuse=False))
    assert play(arrivals, without).metrics.num_hit_tokens == 0


def test_a_small_pool_preempts_and_loses_no_token() -> None:
    machine = replace(MACHINE, limits=replace(LIMITS, num_blocks=12))
    played = play([Arrival(0.0, 12, 20)] * 3, machine)
    assert played.metrics.num_preemptions > 0
    assert [each.num_tokens for each in played.served] == [20, 20, 20]


def test_the_longest_gap_is_that_of_a_preempted_answer() -> None:
    machine = replace(MACHINE, limits=replace(LIMITS, num_blocks=12))
    gaps = [each.longest_gap_s for each in play([Arrival(0.0, 12, 20)] * 3, machine).served]
    assert gaps[0] == 1.0
    assert max(gaps) > 1.0


@pytest.mark.parametrize("policy", ["fcfs", "priority", "srpt", "fair", "longest_prefix"])
@pytest.mark.parametrize("num_blocks", [18, 200])
def test_whatever_the_policy_each_request_ends_once_and_gets_all_its_tokens(
    policy: str, num_blocks: int
) -> None:
    arrivals = draw_arrivals(
        60,
        prompt=read_lengths("lognormal:16:2"),
        answer=read_lengths("exponential:12"),
        max_seq_len=64,
        seed=7,
    )
    arrivals = [
        replace(each, tenant="ab"[i % 2], priority=i % 3) for i, each in enumerate(arrivals)
    ]
    machine = replace(
        MACHINE,
        limits=replace(LIMITS, num_blocks=num_blocks),
        config=EngineConfig(policy=policy, max_waiting=20),
    )
    over: list[int] = []
    played = play(arrivals, machine, on_over=over.append)
    assert sum(over) == 60
    metrics = played.metrics
    assert metrics.num_open == 0
    assert metrics.num_submitted + metrics.refusals.total() == 60
    for each in played.served:
        assert each.finish_reason is None or each.num_tokens == each.arrival.num_answer
    assert metrics.num_generated_tokens == sum(each.num_tokens for each in played.served)
    assert play(arrivals, machine).served == played.served
