"""Each policy by hand; that none changes a token is shown by `test_workloads.py`."""

from typing import Any

import pytest

from tests.triton_backend.making import Clock, compute, make_scheduler, make_sequence
from triton_backend.config import PolicyName
from triton_backend.policies import POLICIES
from triton_backend.policies.policy import AGEING_TOKENS_PER_S
from triton_backend.scheduler import Scheduler


def scheduler_of(policy: PolicyName, **given: Any) -> Scheduler:
    """A scheduler that runs one at a time, and runs somebody already."""
    made = make_scheduler(
        make_sequence("busy", 1), max_num_seqs=1, settings={"policy": policy}, **given
    )
    compute(made)
    return made


def served_in_order(scheduler: Scheduler) -> list[str]:
    """Let one after the other be admitted and finish after a token."""
    names = []
    while scheduler.waiting:
        scheduler.remove(scheduler.running[0])
        names += [name for name, _, _ in compute(scheduler)]
    return names


def test_there_is_a_policy_for_every_name() -> None:
    assert set(POLICIES) == set(PolicyName)


def test_fcfs_goes_by_arrival() -> None:
    scheduler = scheduler_of(PolicyName.FCFS)
    for name, length in (("a", 9), ("b", 1), ("c", 5)):
        scheduler.add(make_sequence(name, length, about={"priority": -length}))
    assert served_in_order(scheduler) == ["a", "b", "c"]


def test_priority_goes_by_the_number_in_the_request_and_then_by_arrival() -> None:
    scheduler = scheduler_of(PolicyName.PRIORITY)
    for name, priority in (("a", 1), ("b", 0), ("c", -3), ("d", 0)):
        scheduler.add(make_sequence(name, 1, about={"priority": priority}))
    assert served_in_order(scheduler) == ["c", "b", "d", "a"]


def test_srpt_goes_by_the_length_of_prompts() -> None:
    scheduler = scheduler_of(PolicyName.SRPT)
    for name, length in (("a", 9), ("b", 1), ("c", 5)):
        scheduler.add(make_sequence(name, length))
    assert served_in_order(scheduler) == ["b", "c", "a"]


@pytest.mark.parametrize(("later_s", "order"), [(0.9, ["short", "long"]), (1.1, ["long", "short"])])
def test_srpt_lets_nobody_be_overtaken_for_ever(later_s: float, order: list[str]) -> None:
    clock = Clock()
    scheduler = scheduler_of(PolicyName.SRPT, clock=clock)
    scheduler.add(make_sequence("long", AGEING_TOKENS_PER_S + 1))
    clock.now = later_s
    scheduler.add(make_sequence("short", 1))
    assert served_in_order(scheduler) == order


def test_longest_prefix_goes_by_what_is_cached_now() -> None:
    about = {"domain": b"one"}
    scheduler = scheduler_of(PolicyName.LONGEST_PREFIX)
    scheduler.remove(scheduler.running[0])
    scheduler.add(make_sequence("first", 17, about=about))
    compute(scheduler)
    scheduler.add(make_sequence("none", 17, first_token=50, about=about))
    scheduler.add(make_sequence("some", 5, about=about))
    scheduler.add(make_sequence("most", 17, about=about))
    assert served_in_order(scheduler) == ["most", "some", "none"]


def test_longest_prefix_lets_nobody_be_overtaken_for_ever() -> None:
    clock = Clock()
    about = {"domain": b"one"}
    scheduler = scheduler_of(PolicyName.LONGEST_PREFIX, clock=clock)
    scheduler.remove(scheduler.running[0])
    scheduler.add(make_sequence("first", 9, about=about))
    compute(scheduler)
    scheduler.add(make_sequence("none", 9, first_token=50, about=about))
    clock.now = 9 / AGEING_TOKENS_PER_S
    scheduler.add(make_sequence("some", 9, about=about))
    assert served_in_order(scheduler) == ["none", "some"]


def test_fair_alternates_between_tenants_by_the_tokens_they_got() -> None:
    scheduler = scheduler_of(PolicyName.FAIR)
    for name, length in (("x1", 4), ("x2", 4), ("x3", 4), ("y1", 9), ("y2", 9)):
        scheduler.add(make_sequence(name, length, about={"tenant": name[0]}))
    # x 0, y 0 -> x 4 -> y 9 -> x 8 -> x 12 -> y
    assert served_in_order(scheduler) == ["x1", "y1", "x2", "x3", "y2"]


def test_fair_counts_tokens_of_answers_but_no_cached_ones_and_none_twice() -> None:
    scheduler = scheduler_of(PolicyName.FAIR)
    scheduler.remove(scheduler.running[0])
    about = {"domain": b"one", "tenant": "x"}
    sequence = make_sequence("x", 8, about=about)
    scheduler.add(sequence)
    for _ in range(4):
        compute(scheduler)
    assert scheduler._shares.served["x"] == 8 + 3  # the last token of an answer is not computed
    scheduler._preempt()
    compute(scheduler)
    assert scheduler._shares.served["x"] == 8 + 4
    scheduler.add(make_sequence("y", 1, about={"tenant": "y"}))
    scheduler.add(make_sequence("again", 9, about=about))
    assert served_in_order(scheduler) == ["y", "again"]
    assert scheduler._shares.served["x"] == 8 + 4 + 1


def test_who_was_preempted_goes_first_under_every_policy() -> None:
    for policy in PolicyName:
        scheduler = scheduler_of(policy)
        scheduler.add(make_sequence("new", 1, about={"priority": -1}))
        scheduler._preempt()
        assert scheduler.waiting.next().request.request_id == "busy"
