"""The scheduler, case by case: budget, blocks and order. `test_workloads.py` has the mixtures."""

import pytest

from builder.errors import QueueFullError, RequestError
from tests.triton_backend.making import (
    compute,
    make_request,
    make_running,
    make_scheduler,
    make_sequence,
)
from triton_backend.plan import Scheduled
from triton_backend.reasons import WaitReason
from triton_backend.request import TokenLogprobs


def test_a_prompt_is_computed_in_one_step_if_the_budget_allows() -> None:
    scheduler = make_scheduler(make_sequence("a", 10))
    assert compute(scheduler) == [("a", 10, 1)]
    assert compute(scheduler) == [("a", 1, 1)]


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_has_logits() -> None:
    scheduler = make_scheduler(make_sequence("a", 10), max_num_tokens=4)
    assert [compute(scheduler) for _ in range(4)] == [
        [("a", 4, 0)],
        [("a", 4, 0)],
        [("a", 2, 1)],
        [("a", 1, 1)],
    ]


def test_single_tokens_and_chunks_share_the_budget_oldest_first() -> None:
    scheduler = make_scheduler(make_sequence("a", 3), max_num_tokens=5)
    compute(scheduler)
    scheduler.add(make_sequence("b", 9))
    scheduler.add(make_sequence("c", 2))
    assert compute(scheduler) == [("a", 1, 1), ("b", 4, 0)]
    assert compute(scheduler) == [("a", 1, 1), ("b", 4, 0)]
    assert compute(scheduler) == [("a", 1, 1), ("b", 1, 1), ("c", 2, 1)]


def test_no_more_sequences_run_than_the_limit() -> None:
    waiting = [make_sequence(name, 2) for name in "abc"]
    scheduler = make_scheduler(*waiting, max_num_seqs=2)
    assert compute(scheduler) == [("a", 2, 1), ("b", 2, 1)]
    scheduler.remove(waiting[0])
    assert compute(scheduler) == [("b", 1, 1), ("c", 2, 1)]


def test_no_more_sequences_run_than_there_are_logit_rows() -> None:
    scheduler = make_scheduler(make_sequence("a", 2), make_sequence("b", 2), max_logit_rows=1)
    assert compute(scheduler) == [("a", 2, 1)]
    assert compute(scheduler) == [("a", 1, 1)]
    assert len(scheduler.waiting) == 1


def test_no_more_sequences_run_than_there_are_tokens_in_a_step() -> None:
    scheduler = make_scheduler(*(make_sequence(name, 1) for name in "abc"), max_num_tokens=2)
    assert compute(scheduler) == [("a", 1, 1), ("b", 1, 1)]
    assert compute(scheduler) == [("a", 1, 1), ("b", 1, 1)]


def test_a_running_sequence_takes_one_block_when_its_tokens_need_it() -> None:
    sequence = make_sequence("a", 3)
    scheduler = make_scheduler(sequence, block_size=4)
    sizes = []
    for _ in range(7):
        compute(scheduler)
        sizes.append((sequence.num_computed, len(sequence.block_table)))
    assert sizes == [(3, 1), (4, 1), (5, 2), (6, 2), (7, 2), (8, 2), (9, 3)]


def test_admission_takes_blocks_for_the_whole_prompt() -> None:
    sequence = make_sequence("a", 10)
    scheduler = make_scheduler(sequence, max_num_tokens=2, block_size=4)
    compute(scheduler)
    assert len(sequence.block_table) == 3


def test_the_newest_gives_its_blocks_when_they_run_out() -> None:
    scheduler = make_scheduler(make_sequence("c", 1), block_size=4, num_blocks=4)
    a = make_running(scheduler, "a", 5, num_computed=4, num_blocks=1)
    b = make_running(scheduler, "b", 8, num_computed=6, num_blocks=2)
    plan = scheduler.plan()
    assert plan.preempted == (b,)
    assert plan.scheduled == (Scheduled(a, 1, 1),)
    assert [s.request.request_id for s in scheduler.waiting] == ["b", "c"]
    assert (b.num_computed, len(b.block_table)) == (0, 0)
    assert (len(a.block_table), scheduler.pool.num_free) == (2, 1)


def test_as_many_are_preempted_as_it_takes() -> None:
    scheduler = make_scheduler(block_size=1, num_blocks=6)
    a = make_running(scheduler, "a", 4, num_computed=1, num_blocks=1)
    b, c, d = (
        make_running(scheduler, name, num, num_computed=num - 1, num_blocks=num)
        for name, num in (("b", 1), ("c", 2), ("d", 1))
    )
    plan = scheduler.plan()
    assert plan.preempted == (d, c)
    assert plan.scheduled == (Scheduled(a, 3, 1), Scheduled(b, 1, 1))
    assert list(scheduler.waiting) == [c, d]


def test_the_newest_gives_up_its_own_blocks_when_it_lacks_one() -> None:
    scheduler = make_scheduler(block_size=4, num_blocks=4)
    a = make_running(scheduler, "a", 8, num_computed=7, num_blocks=2)
    b = make_running(scheduler, "b", 5, num_computed=4, num_blocks=1)
    plan = scheduler.plan()
    assert plan.preempted == (b,)
    assert plan.scheduled == (Scheduled(a, 1, 1),)
    assert scheduler.pool.num_free == 1


def test_a_preempted_sequence_is_computed_anew_with_its_answer() -> None:
    a, b = make_sequence("a", 4), make_sequence("b", 3)
    scheduler = make_scheduler(a, b, block_size=4, num_blocks=4)
    seen = [compute(scheduler) for _ in range(6)]
    assert seen[:2] == [[("a", 4, 1), ("b", 3, 1)], [("a", 1, 1), ("b", 1, 1)]]
    assert seen[2] == [("a", 1, 1)]  # b needs a second block, and there is none
    scheduler.remove(a)
    assert compute(scheduler) == [("b", 5, 1)]


def test_admission_keeps_the_watermark_free_beside_others() -> None:
    scheduler = make_scheduler(
        make_sequence("a", 8),
        make_sequence("b", 8),
        block_size=4,
        num_blocks=11,
        settings={"watermark": 0.7},
    )
    assert compute(scheduler) == [("a", 8, 1)]
    scheduler.remove(scheduler.running[0])
    assert compute(scheduler) == [("b", 8, 1)]


@pytest.mark.parametrize(("num_blocks", "num_running"), [(4, 1), (5, 2)])
def test_the_watermark_is_one_block_at_least(num_blocks: int, num_running: int) -> None:
    a, b = make_sequence("a", 4), make_sequence("b", 8)  # 3 blocks together
    scheduler = make_scheduler(a, b, block_size=4, num_blocks=num_blocks)
    compute(scheduler)
    assert len(scheduler.running) == num_running


def test_who_does_not_fit_holds_back_those_behind() -> None:
    big, small = make_sequence("big", 12), make_sequence("small", 1)
    scheduler = make_scheduler(
        make_sequence("a", 4), big, small, block_size=4, num_blocks=5, max_num_tokens=100
    )
    assert compute(scheduler) == [("a", 4, 1)]
    assert list(scheduler.waiting) == [big, small]


@pytest.mark.parametrize("is_running", [True, False])
def test_a_removed_sequence_holds_nothing(is_running: bool) -> None:
    sequence = make_sequence("a", 4)
    scheduler = make_scheduler(sequence)
    if is_running:
        compute(scheduler)
    scheduler.remove(sequence)
    assert not scheduler.running
    assert not scheduler.waiting
    assert scheduler.pool.num_used == 0


def test_an_idle_scheduler_plans_nothing() -> None:
    plan = make_scheduler().plan()
    assert (plan.scheduled, plan.preempted, plan.block_copies) == ((), (), ())


def test_equal_queues_give_equal_plans() -> None:
    def served() -> list[list[tuple[str, int, int]]]:
        sequences = [make_sequence(f"r{length}", length) for length in (9, 2, 30, 7, 1)]
        scheduler = make_scheduler(*sequences, max_num_tokens=8, num_blocks=14, block_size=2)
        return [compute(scheduler) for _ in range(8)]

    assert served() == served()


def test_prompts_leave_others_waiting_for_no_more_than_a_chunk() -> None:
    scheduler = make_scheduler(make_sequence("a", 3), settings={"max_chunk_tokens": 4})
    compute(scheduler)
    for name, length in (("b", 6), ("c", 3), ("d", 5)):
        scheduler.add(make_sequence(name, length))
    assert compute(scheduler) == [("a", 1, 1), ("b", 4, 0)]
    assert compute(scheduler) == [("a", 1, 1), ("b", 2, 1), ("c", 2, 0)]
    assert compute(scheduler) == [("a", 1, 1), ("b", 1, 1), ("c", 1, 1), ("d", 4, 0)]


def test_a_prompt_is_not_held_up_where_nobody_waits_for_a_token() -> None:
    a, b = make_sequence("a", 9), make_sequence("b", 9)
    scheduler = make_scheduler(a, b, settings={"max_chunk_tokens": 2})
    assert compute(scheduler) == [("a", 9, 1), ("b", 9, 1)]


def test_a_single_pending_token_needs_none_of_what_prompts_may_have() -> None:
    scheduler = make_scheduler(make_sequence("a", 3), settings={"max_chunk_tokens": 2})
    compute(scheduler)
    scheduler.add(make_sequence("b", 2))
    scheduler.add(make_sequence("c", 1))
    assert compute(scheduler) == [("a", 1, 1), ("b", 2, 1), ("c", 1, 1)]


def test_the_tokens_of_a_prompt_with_logprobs_each_take_a_row() -> None:
    sequence = make_sequence("a", 5, prompt_logprobs=0)
    scheduler = make_scheduler(sequence, make_sequence("b", 1), max_logit_rows=2)
    for told in ([2, 1], [2, 1]):
        plan = scheduler.plan()
        assert plan.scheduled == (Scheduled(sequence, 2, 2),)
        assert plan.waits_for is WaitReason.BUDGET
        sequence.num_computed += 2
        sequence.prompt_logprobs += [TokenLogprobs(-1.0, 1, (), ()) for _ in told]
        scheduler.settle(plan)
    plan = scheduler.plan()
    assert plan.scheduled[0] == Scheduled(sequence, 1, 1)
    assert [share.num_tokens for share in plan.scheduled] == [1, 1]


def test_a_prompt_with_logprobs_takes_the_rows_that_those_before_it_leave() -> None:
    asks = make_sequence("asks", 9, prompt_logprobs=0)
    scheduler = make_scheduler(asks, make_sequence("behind", 1), max_logit_rows=5)
    make_running(scheduler, "b", 3, num_computed=2, num_blocks=1)
    make_running(scheduler, "c", 3, num_computed=2, num_blocks=1)
    shares = scheduler.plan().scheduled
    assert [(share.num_tokens, share.num_rows) for share in shares] == [(1, 1), (1, 1), (3, 3)]


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"max_num_seqs": 1}, WaitReason.SLOTS),
        ({"max_num_tokens": 8}, WaitReason.BUDGET),
        ({"num_blocks": 4}, WaitReason.BLOCKS),
    ],
)
def test_a_plan_says_what_the_next_one_waits_for(
    limits: dict[str, int], reason: WaitReason
) -> None:
    plan = make_scheduler(make_sequence("a", 8), make_sequence("b", 8), **limits).plan()
    assert [each.request.request_id for each in plan.admitted] == ["a"]
    assert plan.waits_for is reason


def test_nobody_waits_for_anything_when_all_run() -> None:
    assert make_scheduler(make_sequence("a", 8)).plan().waits_for is None


def test_after_a_failed_step_all_wait_again_in_order_and_nothing_is_held() -> None:
    a, b = make_sequence("a", 4), make_sequence("b", 3)
    scheduler = make_scheduler(a, b, make_sequence("c", 2), max_num_seqs=2)
    scheduler.plan()
    assert scheduler.discard() == [a, b]
    assert [each.request.request_id for each in scheduler.waiting] == ["a", "b", "c"]
    assert scheduler.cache.num_held == 0
    assert compute(scheduler) == [("a", 4, 1), ("b", 3, 1)]


def test_the_queue_takes_what_there_is_place_for_and_then_so_many_more() -> None:
    scheduler = make_scheduler(max_num_seqs=2, settings={"max_waiting": 3})
    for number in range(5):
        scheduler.check_room(make_request("new", (1,)))
        scheduler.add(make_sequence(f"r{number}", 1))
    with pytest.raises(QueueFullError, match=r"5 answers wait already.*max_waiting 3.*try again"):
        scheduler.check_room(make_request("new", (1,)))
    compute(scheduler)
    with pytest.raises(QueueFullError):
        scheduler.check_room(make_request("new", (1,)))
    scheduler.remove(scheduler.running[0])
    scheduler.check_room(make_request("new", (1,)))


def test_every_choice_of_a_request_takes_a_place_in_the_queue() -> None:
    scheduler = make_scheduler(max_num_seqs=2, settings={"max_waiting": 3})
    scheduler.check_room(make_request("all", (1,), num_choices=5))
    scheduler.add(make_sequence("a", 1))
    scheduler.check_room(make_request("fits", (1,), num_choices=4))
    with pytest.raises(QueueFullError, match="1 answers wait already and 5 would be added"):
        scheduler.check_room(make_request("one too many", (1,), num_choices=5))


def test_more_choices_than_an_empty_queue_takes_are_refused_for_good() -> None:
    scheduler = make_scheduler(max_num_seqs=2, settings={"max_waiting": 3})
    with pytest.raises(RequestError, match=r"2 answers run and 3 wait \(max_waiting\)") as caught:
        scheduler.check_room(make_request("all", (1,), num_choices=6))
    assert not isinstance(caught.value, QueueFullError)


def test_the_queue_is_bounded_in_tokens_too_but_never_when_it_is_empty() -> None:
    scheduler = make_scheduler(settings={"max_waiting_tokens": 10})
    scheduler.check_room(make_request("long", (1,) * 50))
    scheduler.add(make_sequence("a", 8))
    scheduler.check_room(make_request("fits", (1,) * 2))
    with pytest.raises(QueueFullError, match=r"8 tokens wait already \(max_waiting_tokens 10\)"):
        scheduler.check_room(make_request("long", (1,) * 3))
    with pytest.raises(QueueFullError, match="8 tokens wait already"):
        scheduler.check_room(make_request("choices", (1,) * 2, num_choices=2))
