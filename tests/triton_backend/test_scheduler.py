"""The scheduler, case by case; `test_workloads.py` has the mixtures."""

import pytest

from tests.triton_backend.making import compute, make_running, make_scheduler, make_sequence


def test_a_prompt_is_computed_in_one_step_if_the_budget_allows() -> None:
    scheduler = make_scheduler(make_sequence("a", 10))
    assert compute(scheduler) == [("a", 10, True)]
    assert compute(scheduler) == [("a", 1, True)]


def test_a_long_prompt_is_cut_into_chunks_and_only_the_last_has_logits() -> None:
    scheduler = make_scheduler(make_sequence("a", 10), max_num_tokens=4)
    assert [compute(scheduler) for _ in range(4)] == [
        [("a", 4, False)],
        [("a", 4, False)],
        [("a", 2, True)],
        [("a", 1, True)],
    ]


def test_single_tokens_and_chunks_share_the_budget_oldest_first() -> None:
    scheduler = make_scheduler(make_sequence("a", 3), max_num_tokens=5)
    compute(scheduler)
    scheduler.add(make_sequence("b", 9))
    scheduler.add(make_sequence("c", 2))
    assert compute(scheduler) == [("a", 1, True), ("b", 4, False)]
    assert compute(scheduler) == [("a", 1, True), ("b", 4, False)]
    assert compute(scheduler) == [("a", 1, True), ("b", 1, True), ("c", 2, True)]


def test_no_more_sequences_run_than_the_limit() -> None:
    waiting = [make_sequence(name, 2) for name in "abc"]
    scheduler = make_scheduler(*waiting, max_num_seqs=2)
    assert compute(scheduler) == [("a", 2, True), ("b", 2, True)]
    scheduler.remove(waiting[0])
    assert compute(scheduler) == [("b", 1, True), ("c", 2, True)]


def test_no_more_sequences_run_than_there_are_logit_rows() -> None:
    scheduler = make_scheduler(make_sequence("a", 2), make_sequence("b", 2), max_logit_rows=1)
    assert compute(scheduler) == [("a", 2, True)]
    assert compute(scheduler) == [("a", 1, True)]
    assert len(scheduler.waiting) == 1


def test_no_more_sequences_run_than_there_are_tokens_in_a_step() -> None:
    scheduler = make_scheduler(*(make_sequence(name, 1) for name in "abc"), max_num_tokens=2)
    assert compute(scheduler) == [("a", 1, True), ("b", 1, True)]
    assert compute(scheduler) == [("a", 1, True), ("b", 1, True)]


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
    assert plan.scheduled == ((a, 1, True),)
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
    assert plan.scheduled == ((a, 3, True), (b, 1, True))
    assert list(scheduler.waiting) == [c, d]


def test_the_newest_gives_up_its_own_blocks_when_it_lacks_one() -> None:
    scheduler = make_scheduler(block_size=4, num_blocks=4)
    a = make_running(scheduler, "a", 8, num_computed=7, num_blocks=2)
    b = make_running(scheduler, "b", 5, num_computed=4, num_blocks=1)
    plan = scheduler.plan()
    assert plan.preempted == (b,)
    assert plan.scheduled == ((a, 1, True),)
    assert scheduler.pool.num_free == 1


def test_a_preempted_sequence_is_computed_anew_with_its_answer() -> None:
    a, b = make_sequence("a", 4), make_sequence("b", 3)
    scheduler = make_scheduler(a, b, block_size=4, num_blocks=4)
    seen = [compute(scheduler) for _ in range(6)]
    assert seen[:2] == [[("a", 4, True), ("b", 3, True)], [("a", 1, True), ("b", 1, True)]]
    assert seen[2] == [("a", 1, True)]  # b needs a second block, and there is none
    scheduler.remove(a)
    assert compute(scheduler) == [("b", 5, True)]


def test_admission_keeps_the_watermark_free_beside_others() -> None:
    scheduler = make_scheduler(
        make_sequence("a", 8), make_sequence("b", 8), block_size=4, num_blocks=11, watermark=0.7
    )
    assert compute(scheduler) == [("a", 8, True)]
    scheduler.remove(scheduler.running[0])
    assert compute(scheduler) == [("b", 8, True)]


@pytest.mark.parametrize(("num_blocks", "num_running"), [(4, 1), (5, 2)])
def test_the_watermark_is_one_block_at_least(num_blocks: int, num_running: int) -> None:
    a, b = make_sequence("a", 4), make_sequence("b", 8)  # 3 blocks together
    scheduler = make_scheduler(a, b, block_size=4, num_blocks=num_blocks, watermark=0.0)
    compute(scheduler)
    assert len(scheduler.running) == num_running


def test_who_does_not_fit_holds_back_those_behind() -> None:
    big, small = make_sequence("big", 12), make_sequence("small", 1)
    scheduler = make_scheduler(
        make_sequence("a", 4), big, small, block_size=4, num_blocks=5, max_num_tokens=100
    )
    assert compute(scheduler) == [("a", 4, True)]
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


def test_logit_sequences_are_those_with_a_row_in_order() -> None:
    a, b, c = make_sequence("a", 1), make_sequence("b", 1), make_sequence("c", 9)
    plan = make_scheduler(a, b, c, max_num_tokens=6).plan()
    assert plan.logit_sequences == [a, b]


def test_equal_queues_give_equal_plans() -> None:
    def served() -> list[list[tuple[str, int, bool]]]:
        sequences = [make_sequence(f"r{length}", length) for length in (9, 2, 30, 7, 1)]
        scheduler = make_scheduler(*sequences, max_num_tokens=8, num_blocks=14, block_size=2)
        return [compute(scheduler) for _ in range(8)]

    assert served() == served()
