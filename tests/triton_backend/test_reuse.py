"""What the scheduler reuses: cached blocks of the same domain, and the prompt of another choice."""

from typing import Any

from tests.triton_backend.making import (
    compute,
    make_scheduler,
    make_sequence,
    make_siblings,
)
from triton_backend.reasons import WaitReason
from triton_backend.scheduler import Scheduler
from triton_backend.sequence import Sequence


def shared(name: str, num_prompt: int, *, domain: bytes | None = b"one", **given: Any) -> Sequence:
    about = {"domain": domain, "store": given.pop("store", True)}
    return make_sequence(name, num_prompt, about=about, **given)


def served(first: Sequence, num_steps: int = 1, **given: Any) -> Scheduler:
    """A scheduler that has computed a sequence and forgotten it."""
    scheduler = make_scheduler(first, **given)
    for _ in range(num_steps):
        compute(scheduler)
    scheduler.remove(first)
    return scheduler


def test_full_blocks_of_an_earlier_prompt_are_not_computed_again() -> None:
    scheduler = served(shared("a", 9))
    second = shared("b", 12)
    scheduler.add(second)
    assert compute(scheduler) == [("b", 4, 1)]
    assert (second.num_cached, second.num_admissions) == (8, 1)


def test_one_token_is_always_computed() -> None:
    scheduler = served(shared("a", 8))
    second = shared("b", 8)
    scheduler.add(second)
    plan = scheduler.plan()
    assert [(share.num_tokens, share.num_rows) for share in plan.scheduled] == [(1, 1)]
    assert second.num_cached == 7
    assert len(plan.block_copies) == 1


def test_a_block_that_begins_alike_is_copied_and_held_until_the_step_is_done() -> None:
    first = shared("a", 8)
    scheduler = make_scheduler(first)
    compute(scheduler)
    source = first.block_table[1]
    scheduler.remove(first)
    second = shared("b", 7)
    scheduler.add(second)
    plan = scheduler.plan()
    assert plan.block_copies == ((source, second.block_table[1]),)
    assert (second.num_computed, second.num_cached) == (6, 6)
    assert scheduler.cache.num_held == 3
    scheduler.settle(plan)
    assert scheduler.cache.num_held == 2


def test_a_block_that_is_only_copied_from_is_done_without_where_it_is_one_too_many() -> None:
    scheduler = served(shared("a", 8), num_blocks=3)
    second = shared("b", 7)
    scheduler.add(second)
    plan = scheduler.plan()
    assert (plan.block_copies, second.num_computed) == ((), 4)


def test_the_blocks_that_a_discarded_step_copies_from_are_given_back() -> None:
    scheduler = served(shared("a", 8))
    scheduler.add(shared("b", 7))
    scheduler.plan()
    scheduler.discard()
    assert scheduler.cache.num_held == 0
    assert scheduler.cache.num_cached == 0


def test_another_domain_and_none_at_all_reuse_nothing() -> None:
    scheduler = served(shared("a", 9))
    for name, domain in (("b", b"other"), ("c", None)):
        sequence = shared(name, 9, domain=domain)
        scheduler.add(sequence)
        assert compute(scheduler)[-1] == (name, 9, 1)
        assert sequence.num_cached == 0


def test_what_is_not_to_be_stored_reuses_and_leaves_nothing() -> None:
    scheduler = served(shared("a", 9, store=False))
    scheduler.add(shared("b", 9))
    assert compute(scheduler) == [("b", 9, 1)]
    scheduler.add(shared("c", 9, store=False))
    assert compute(scheduler) == [("b", 1, 1), ("c", 1, 1)]


def test_the_tokens_of_an_answer_are_reused_like_a_prompt() -> None:
    first = shared("a", 3)
    scheduler = served(first, num_steps=6)
    second = shared("b", 0)
    second.token_ids.extend(first.token_ids)
    scheduler.add(second)
    compute(scheduler)
    assert second.num_cached == 8


def test_a_prompt_with_logprobs_is_computed_whole() -> None:
    scheduler = served(shared("a", 9))
    scheduler.add(shared("b", 9, prompt_logprobs=1))
    assert compute(scheduler) == [("b", 9, 9)]


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    sequence = shared("a", 9)
    scheduler = make_scheduler(sequence)
    compute(scheduler)
    scheduler._preempt()
    assert compute(scheduler) == [("a", 2, 1)]  # two blocks of ten known tokens
    assert sequence.num_cached == 0  # that is about the first admission
    assert sequence.num_admissions == 2


def test_held_blocks_are_not_counted_twice_when_admitting() -> None:
    first = shared("a", 9)
    scheduler = make_scheduler(first, num_blocks=6)
    compute(scheduler)
    scheduler.add(shared("b", 9))
    assert compute(scheduler) == [("a", 1, 1), ("b", 1, 1)]
    assert scheduler.cache.num_held == 4


def test_choices_wait_for_the_prompt_and_share_its_blocks() -> None:
    first, second, third = siblings = make_siblings("a", 10, 3)
    scheduler = make_scheduler(*siblings, max_num_tokens=6)
    assert compute(scheduler) == [("a", 6, 0)]
    assert compute(scheduler) == [("a", 4, 1)]
    plan = scheduler.plan()
    assert [share.num_tokens for share in plan.scheduled] == [1, 1, 1]
    assert second.block_table[:2] == third.block_table[:2] == first.block_table[:2]
    source = first.block_table[2]
    assert plan.block_copies == ((source, second.block_table[2]), (source, third.block_table[2]))
    assert second.num_cached == third.num_cached == 9
    scheduler.settle(plan)
    for sequence in siblings:
        scheduler.remove(sequence)
    assert scheduler.cache.num_held == 0


def test_a_plan_says_that_a_choice_waits_for_another() -> None:
    plan = make_scheduler(*make_siblings("a", 10, 2)).plan()
    assert plan.waits_for is WaitReason.LEADER
    assert len(plan.admitted) == 1


def test_a_choice_computes_the_prompt_itself_when_the_others_are_gone() -> None:
    first, second = siblings = make_siblings("a", 10, 2)
    scheduler = make_scheduler(*siblings)
    compute(scheduler)
    scheduler.remove(first)
    siblings.remove(first)
    assert compute(scheduler) == [("a", 10, 1)]
    assert second.num_cached == 0


def test_any_choice_that_runs_can_give_the_prompt() -> None:
    first, _, third = siblings = make_siblings("a", 10, 3)
    scheduler = make_scheduler(*siblings, max_num_seqs=2)
    compute(scheduler)
    compute(scheduler)
    scheduler.remove(first)
    siblings.remove(first)
    assert compute(scheduler) == [("a", 1, 1), ("a", 1, 1)]
    assert third.num_cached == 9
