"""Constraints of fronts on their way to the worker: compiled in a queue of their own, counted where they are refused."""

import time

import pytest

from tests.triton_backend.host_stage import Stage, answer, await_true, submit
from triton_backend.link import Link
from triton_backend.messages import Cancel, FromHost, Ping, PlainText, Pong, RefusalKind, Refused
from triton_backend.reasons import Refusal
from triton_backend.request import FinishReason


def hold_compiling(served: Stage) -> Link[FromHost]:
    """Let a front have a constraint that takes for ever."""
    served.model.may_compile.clear()
    link = served.join()
    link.send(submit(1, constraint="slow"))
    await_true(lambda: served.model.compiled == ["slow"])
    return link


def refusal(link: Link[FromHost]) -> Refused:
    message = link.receive()
    assert isinstance(message, Refused)
    return message


def test_a_prompt_without_a_constraint_waits_for_none(served: Stage) -> None:
    link = hold_compiling(served)
    for number in range(2, 4):
        link.send(submit(number, constraint="slower"))
    link.send(submit(4))
    assert len(answer(link, 4)) == 3
    assert served.model.compiled == ["slow"]


def test_a_constraint_that_is_known_waits_for_no_other(served: Stage) -> None:
    link = hold_compiling(served)
    link.send(submit(2, constraint="known"))
    refused = refusal(link)  # by the engine, which has no masks
    assert (refused.id, refused.message[:27]) == (2, "constraint is not supported")


def test_more_constraints_than_may_wait_are_refused_and_those_that_wait_are_counted(
    served: Stage,
) -> None:
    link = hold_compiling(served)
    for number in range(2, 6):
        link.send(submit(number, constraint="slow"))
    refused = refusal(link)
    assert (refused.id, refused.kind) == (5, RefusalKind.UNAVAILABLE)
    assert refused.message.startswith("the queue is full: the texts of 3 requests, 21 characters")
    link.send(Ping())
    pong = link.receive()
    assert isinstance(pong, Pong)
    assert (pong.num_waiting, pong.refused) == (4, {"constraint_queue_full": 1})


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        ("busy", RefusalKind.UNAVAILABLE, Refusal.BUSY),
        ("wrong", RefusalKind.INVALID, Refusal.INVALID),
    ],
)
def test_a_constraint_that_is_not_compiled_is_refused_and_counted(
    served: Stage, text: str, kind: RefusalKind, reason: Refusal
) -> None:
    link = served.join()
    link.send(submit(1, constraint=text))
    assert refusal(link).kind == kind
    link.send(Ping())
    pong = link.receive()
    assert isinstance(pong, Pong)
    assert pong.refused == {reason: 1}


def test_prompts_that_are_refused_are_counted(served: Stage) -> None:
    served.model.may_encode.clear()
    link = served.join()
    link.send(submit(1, prompt=PlainText("this")))
    await_true(lambda: served.model.num_begun == 1)
    for number in range(2, 8):
        link.send(submit(number, prompt=PlainText("panic")))
    assert refusal(link).id == 7
    served.model.may_encode.set()
    for _ in range(6):
        refusal(link)
    link.send(Ping())
    pong = link.receive()
    assert isinstance(pong, Pong)
    assert pong.refused == {"prompt_queue_full": 1, "invalid": 1, "internal": 5}


@pytest.mark.parametrize("leaves", [True, False])
def test_what_is_cancelled_or_left_behind_is_never_compiled(served: Stage, leaves: bool) -> None:
    link = hold_compiling(served)
    for number in range(2, 4):
        link.send(submit(number, constraint="unwanted"))
    await_true(lambda: len(served.constraints) == 3)
    if leaves:
        link.close()
    else:
        for number in range(1, 4):
            link.send(Cancel(number))
            assert answer(link, number)[-1].finish_reason == FinishReason.CANCELLED
    await_true(lambda: len(served.constraints) == 1)
    served.model.may_compile.set()
    await_true(lambda: len(served.constraints) == 0)
    assert served.model.compiled == ["slow"]


def test_a_constraint_that_waits_past_its_deadline_is_never_compiled(served: Stage) -> None:
    link = hold_compiling(served)
    link.send(submit(2, constraint="late", deadline_s=time.monotonic() + 1000))
    await_true(lambda: len(served.constraints) == 2)
    served.constraints._clock = lambda: time.monotonic() + 2000
    served.constraints.give_up_late()
    (news,) = answer(link, 2)
    assert news.finish_reason == FinishReason.TIMEOUT
    assert news.error == "the deadline passed before the request was read."
    served.model.may_compile.set()
    assert refusal(link).id == 1
    assert served.model.compiled == ["slow"]
