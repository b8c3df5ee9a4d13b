"""Drafts: what they guess, what they may take of a step, and when a drafter rests."""

from hypothesis import given
from hypothesis import strategies as st

from tests.triton_backend.making import make_running, make_scheduler, make_sequence
from triton_backend.drafting import LONGEST, REST, SHORTEST, WINDOW, Drafter
from triton_backend.plan import Scheduled
from triton_backend.scheduler import Scheduler
from triton_backend.sequence import Sequence

REPEATED = (1, 2, 3, 4, 5, 1, 2, 3)


def repeating(scheduler: Scheduler, num_blocks: int = 2) -> Sequence:
    """A running sequence whose last tokens stood before, with one pending."""
    sequence = make_running(scheduler, "a", 0, num_computed=7, num_blocks=num_blocks)
    sequence.token_ids.extend(REPEATED)
    sequence.drafter = Drafter()
    return sequence


def test_what_followed_the_last_tokens_before_is_guessed() -> None:
    assert Drafter().propose(REPEATED, 2) == (4, 5)
    assert Drafter().propose(REPEATED, 4) == (4, 5, 1, 2)


def test_the_longest_run_and_then_its_latest_place_decide() -> None:
    assert Drafter().propose((1, 2, 3, 9, 5, 2, 3, 8, 1, 2, 3), 1) == (9,)
    assert Drafter().propose((1, 2, 3, 9, 1, 2, 3, 8, 1, 2, 3), 1) == (8,)
    assert Drafter().propose((7, 2, 3, 9, 1, 2, 3), 1) == (9,)


def test_nothing_is_guessed_where_nothing_like_it_stood_before() -> None:
    assert Drafter().propose((1, 2, 3, 4), 4) == ()
    assert Drafter().propose((1,), 4) == ()
    assert Drafter().propose(REPEATED, 0) == ()


def slow_guess(token_ids: list[int], most: int) -> tuple[int, ...]:
    """Look for the last tokens from the end, the longest run first."""
    for length in range(LONGEST, SHORTEST - 1, -1):
        for place in range(len(token_ids) - 1, length - 1, -1):
            if token_ids[place - length : place] == token_ids[-length:]:
                return tuple(token_ids[place : place + most])
    return ()


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 5))
def test_guesses_as_an_answer_grows_equal_a_search(token_ids: list[int], most: int) -> None:
    drafter = Drafter()
    for end in range(1, len(token_ids) + 1, 2):
        assert drafter.propose(token_ids[:end], most) == slow_guess(token_ids[:end], most)


def test_a_drafter_whose_guesses_fail_rests_for_a_while() -> None:
    drafter = Drafter()
    known = list(REPEATED)
    drafter.judge(WINDOW, 1, num_known=len(known))
    assert drafter.propose(known, 2) == ()
    assert drafter.propose(REPEATED * (REST // 4), 2) != ()


def test_a_drafter_whose_guesses_hold_goes_on() -> None:
    drafter = Drafter()
    for _ in range(20):
        drafter.judge(4, 2, num_known=8)
    assert drafter.propose(REPEATED, 2) == (4, 5)


def test_a_good_start_does_not_make_up_for_ever() -> None:
    drafter = Drafter()
    drafter.judge(WINDOW, WINDOW, num_known=8)
    drafter.judge(WINDOW, 0, num_known=8)
    assert drafter.propose(REPEATED, 2) == ()


def test_drafts_are_scheduled_behind_the_last_known_token_with_a_row_each() -> None:
    scheduler = make_scheduler(settings={"max_draft_tokens": 3})
    sequence = repeating(scheduler)
    assert scheduler.plan().scheduled == (Scheduled(sequence, 4, 4, (4, 5, 1)),)


def test_a_block_beyond_the_known_tokens_is_not_kept() -> None:
    scheduler = make_scheduler()
    sequence = repeating(scheduler)
    sequence.token_ids.extend((4, 5, 1))
    sequence.block_table.extend(scheduler.cache.allocate(1))
    sequence.num_computed = 10
    plan = scheduler.plan()
    assert (plan.scheduled[0].drafted, len(sequence.block_table)) == ((2, 3, 4, 5), 4)
    sequence.num_computed = 11
    sequence.token_ids.append(9)
    scheduler.settle(plan)
    assert len(sequence.block_table) == 3


def test_drafts_get_what_is_left_of_tokens_rows_and_blocks() -> None:
    assert drafted_with(max_num_tokens=3) == (4, 5)
    assert drafted_with(max_logit_rows=2) == (4,)
    assert drafted_with(num_blocks=4) == ()  # one block is free, and set aside
    assert drafted_with(num_blocks=5) == (4, 5, 1, 2)


def drafted_with(**limits: int) -> tuple[int, ...]:
    scheduler = make_scheduler(**limits)
    repeating(scheduler)
    (share,) = scheduler.plan().scheduled
    return share.drafted


def test_a_guess_pushes_nobodys_prefix_out() -> None:
    scheduler = make_scheduler(num_blocks=6)
    cached = make_sequence("cached", 12, first_token=10, about={"domain": b"one"})
    cached.block_table.extend(scheduler.cache.allocate(3))
    scheduler.cache.publish(cached.chain, cached.token_ids, cached.block_table, 12)
    scheduler.cache.release(cached.block_table)
    assert (scheduler.cache.num_idle, scheduler.pool.num_free) == (3, 2)
    sequence = repeating(scheduler)
    assert scheduler.pool.num_free == 0
    (share,) = scheduler.plan().scheduled
    assert (share.drafted, scheduler.cache.num_idle) == ((), 3)
    assert len(sequence.block_table) == 2


def test_whoever_is_admitted_goes_before_drafts() -> None:
    scheduler = make_scheduler(max_num_tokens=4)
    repeating(scheduler)
    scheduler.add(make_sequence("b", 2))
    first, second = scheduler.plan().scheduled
    assert (first.drafted, second.num_tokens) == ((4,), 2)


def test_an_answer_is_not_drafted_beyond_its_end() -> None:
    scheduler = make_scheduler()
    sequence = repeating(scheduler)
    sequence.max_known = 10  # one more token after the next
    (share,) = scheduler.plan().scheduled
    assert share.drafted == (4,)


def test_a_chunk_of_a_prompt_is_not_drafted_after() -> None:
    scheduler = make_scheduler(max_num_tokens=6)
    sequence = make_sequence("a", 0, speculation=True)
    sequence.token_ids.extend(REPEATED)
    scheduler.add(sequence)
    (share,) = scheduler.plan().scheduled
    assert (share.num_tokens, share.drafted) == (6, ())
