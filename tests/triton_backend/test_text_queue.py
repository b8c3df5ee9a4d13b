"""The queue of texts: bounded, short ones pass long ones, and no long one waits for ever."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.triton_backend.host_stage import PATIENCE_S
from triton_backend.text_queue import SHORT_CHARACTERS, TextQueue, WaitingText

LONG = SHORT_CHARACTERS + 1


@pytest.fixture
def encoded() -> list[int]:
    """The numbers of prompts, in the order in which they were encoded."""
    return []


@pytest.fixture
def put(encoded: list[int]) -> Callable[..., str]:
    """Put a prompt that notes its number when it is encoded."""

    def put(queue: TextQueue, number: int, num_characters: int = 1) -> str:
        prompt = WaitingText(num_characters, lambda: encoded.append(number), print)
        return queue.put((1, number), prompt)

    return put


def test_the_oldest_is_the_oldest_of_all(put, encoded: list[int]) -> None:
    queue = TextQueue()
    for number, num_characters in enumerate([LONG, 5, 3 * LONG, 1]):
        put(queue, number, num_characters)
    for _ in range(4):
        queue.serve_oldest()
    assert encoded == [0, 1, 2, 3]
    assert len(queue) == 0


def test_the_shortest_comes_first_and_of_equals_the_oldest(put, encoded: list[int]) -> None:
    queue = TextQueue()
    for number, num_characters in enumerate([LONG, 7, SHORT_CHARACTERS, 7, 2]):
        put(queue, number, num_characters)
    for _ in range(4):
        queue.serve_shortest()
    assert encoded == [4, 1, 3, 2]
    assert len(queue) == 1


def test_a_short_prompt_waits_for_no_long_one(put, encoded: list[int]) -> None:
    queue = TextQueue()
    for number in range(100):
        put(queue, number, LONG)
    thread = threading.Thread(target=queue.serve_shortest, daemon=True)
    thread.start()
    put(queue, 100)
    thread.join(PATIENCE_S)
    assert encoded == [100]


def test_a_prompt_that_comes_later_wakes_who_waits(put, encoded: list[int]) -> None:
    queue = TextQueue()
    threads = [
        threading.Thread(target=work, daemon=True)
        for work in (queue.serve_oldest, queue.serve_shortest)
    ]
    for thread in threads:
        thread.start()
    put(queue, 1)
    put(queue, 2)
    for thread in threads:
        thread.join(PATIENCE_S)
    assert sorted(encoded) == [1, 2]


@pytest.mark.parametrize(
    ("limits", "lengths", "message"),
    [
        (
            {"max_waiting": 2},
            [1, 1],
            "the queue is full: the texts of 2 requests, 2 characters, wait",
        ),
        (
            {"max_characters": 9},
            [4, 5],
            "the queue is full: the texts of 2 requests, 9 characters, wait",
        ),
        (
            {"max_characters": 9},
            [99],
            "the queue is full: the texts of 1 requests, 99 characters, wait",
        ),
    ],
)
def test_a_full_queue_says_so_until_there_is_room(
    put, limits: dict[str, int], lengths: list[int], message: str
) -> None:
    queue = TextQueue(**limits)
    for number, length in enumerate(lengths):
        assert put(queue, number, length) == ""
    assert put(queue, 50).startswith(message)
    queue.serve_oldest()
    assert put(queue, 50) == ""


def test_a_prompt_that_is_dropped_is_never_encoded_and_gives_its_room_back(
    put, encoded: list[int]
) -> None:
    queue = TextQueue(max_characters=9)
    put(queue, 1, 9)
    queue.drop((1, 1))
    queue.drop((1, 1))
    assert len(queue) == 0
    assert put(queue, 2, 5) == ""
    assert put(queue, 3, 4) == ""
    queue.serve_oldest()
    assert encoded == [2]


def test_prompts_of_two_fronts_with_the_same_number_are_two() -> None:
    queue = TextQueue()
    for front in (1, 2):
        queue.put((front, 7), WaitingText(1, print, print))
    queue.drop((1, 7))
    assert len(queue) == 1


def test_a_prompt_that_is_being_encoded_is_counted(put) -> None:
    queue = TextQueue()
    counts: list[int] = []
    queue.put((1, 1), WaitingText(1, lambda: counts.append(len(queue)), print))
    put(queue, 2)
    queue.serve_oldest()
    assert counts == [2]
    assert len(queue) == 1


def waiting(number: int, given_up: list[int], deadline_s: float | None) -> WaitingText:
    return WaitingText(1, print, lambda: given_up.append(number), deadline_s)


def test_prompts_whose_deadline_has_passed_are_given_up(put, encoded: list[int]) -> None:
    given_up: list[int] = []
    queue = TextQueue(max_waiting=4, clock=lambda: 10.0)
    put(queue, 0)
    for number, deadline_s in ((1, 10.0), (2, 10.1), (3, 9.0)):
        queue.put((1, number), waiting(number, given_up, deadline_s))
    assert put(queue, 4) != ""
    queue.give_up_late()
    assert given_up == [1, 3]
    assert len(queue) == 2
    assert put(queue, 4) == ""
    queue.serve_oldest()
    assert encoded == [0]


def test_a_deadline_that_comes_later_and_passes_earlier_wakes_who_waits(put) -> None:
    given_up: list[int] = []
    queue = TextQueue()
    thread = threading.Thread(target=queue.give_up_late, daemon=True)
    thread.start()
    put(queue, 0)
    queue.put(
        (1, 1), waiting(1, given_up, time.monotonic() + 1e12)
    )  # more than a lock can wait for
    queue.put((1, 2), waiting(2, given_up, time.monotonic() + 0.05))
    thread.join(PATIENCE_S)
    assert given_up == [2]
    assert len(queue) == 2


def test_one_tenant_after_the_other_has_a_turn(encoded: list[int]) -> None:
    queue = TextQueue()

    def put_of(tenant: str, *numbers: int) -> None:
        for number in numbers:
            work = partial(encoded.append, number)
            queue.put((1, number), WaitingText(1, work, print, tenant=tenant))

    put_of("many", 10, 11, 12, 13)
    put_of("few", 20)
    put_of("two", 30, 31)
    for _ in range(2):
        queue.serve_in_turn()
    put_of("few", 21)
    put_of("late", 40)
    for _ in range(7):
        queue.serve_in_turn()
    assert encoded == [10, 20, 30, 11, 21, 40, 31, 12, 13]
    assert len(queue) == 0


def test_a_tenant_that_is_dropped_has_no_turn(encoded: list[int]) -> None:
    queue = TextQueue()
    for number, tenant in enumerate("aab"):
        work = partial(encoded.append, number)
        queue.put((1, number), WaitingText(1, work, print, tenant=tenant))
    queue.drop((1, 0))
    queue.drop((1, 1))
    queue.serve_in_turn()
    assert encoded == [2]


def test_a_tenant_may_have_so_many_waiting_and_others_none_the_fewer() -> None:
    queue = TextQueue(max_of_tenant=2)

    def put_of(tenant: str, number: int) -> str:
        return queue.put((1, number), WaitingText(1, print, print, tenant=tenant))

    assert put_of("many", 1) == put_of("many", 2) == ""
    assert put_of("many", 3).startswith("the queue is full")
    assert put_of("other", 4) == ""
    queue.serve_in_turn()
    assert put_of("many", 3) == ""
