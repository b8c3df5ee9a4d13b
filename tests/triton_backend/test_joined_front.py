"""Prompts of fronts on their way to the worker: bounded, counted, and forgotten when nobody wants them any more."""

import time

import pytest

from tests.triton_backend.host_stage import Stage, answer, await_true, submit
from triton_backend.link import Link
from triton_backend.messages import (
    Cancel,
    Deltas,
    FromHost,
    Ping,
    PlainText,
    Pong,
    RefusalKind,
    Refused,
)
from triton_backend.request import FinishReason


def test_a_request_is_cancelled_while_its_prompt_is_encoded(served: Stage) -> None:
    served.model.may_encode.clear()
    link = served.join()
    link.send(submit(1))
    link.send(Cancel(1))
    (news,) = answer(link, 1)
    assert (news.token_ids, news.finish_reason) == ((), FinishReason.CANCELLED)
    served.model.may_encode.set()
    link.send(submit(2))
    assert len(answer(link, 2)) == 3
    link.send(Cancel(2))  # over already
    link.send(Cancel(77))
    link.send(Ping())
    assert isinstance(link.receive(), Pong)


def hold_encoding(served: Stage) -> Link[FromHost]:
    """Let a front have a prompt whose encoding does not end."""
    served.model.may_encode.clear()
    link = served.join()
    link.send(submit(1))
    await_true(lambda: served.model.num_begun == 1)
    return link


def ends(link: Link[FromHost], count: int) -> dict[int, FinishReason]:
    """Hear everything until so many requests are over; give how each ended."""
    ended: dict[int, FinishReason] = {}
    while len(ended) < count:
        message = link.receive()
        assert isinstance(message, Deltas)
        ended |= {news.id: news.finish_reason for news in message.news if news.finish_reason}
    return ended


@pytest.mark.parametrize("leaves", [True, False])
def test_what_is_cancelled_or_left_behind_is_never_encoded(served: Stage, leaves: bool) -> None:
    link = hold_encoding(served)
    for number in range(2, 6):
        link.send(submit(number))
    await_true(lambda: len(served.prompts) == 5)
    if leaves:
        link.close()
    else:
        for number in range(1, 6):
            link.send(Cancel(number))
    await_true(lambda: len(served.prompts) == 1)
    served.model.may_encode.set()
    await_true(lambda: len(served.prompts) == 0)
    other = served.join()
    other.send(submit(1))
    assert len(answer(other, 1)) == 3
    assert served.model.num_begun == 2


def test_more_prompts_than_may_wait_are_refused_and_those_that_wait_are_counted(
    served: Stage,
) -> None:
    link = hold_encoding(served)
    for number in range(2, 8):
        link.send(submit(number))
    refused = link.receive()
    assert isinstance(refused, Refused)
    assert (refused.id, refused.kind) == (7, RefusalKind.UNAVAILABLE)
    assert refused.message.startswith(
        "the queue is full: the texts of 5 requests, 15 characters, wait"
    )
    link.send(Ping())
    pong = link.receive()
    assert isinstance(pong, Pong)
    assert (pong.num_waiting, pong.num_running) == (6, 0)
    served.model.may_encode.set()
    assert ends(link, 6).keys() == set(range(1, 7))


def test_a_prompt_that_waits_past_its_deadline_is_never_encoded(served: Stage) -> None:
    link = hold_encoding(served)
    link.send(submit(2))
    link.send(submit(3, deadline_s=time.monotonic() + 0.05))
    (news,) = answer(link, 3)
    assert (news.finish_reason, news.is_last) == (FinishReason.TIMEOUT, True)
    assert news.error == "the deadline passed before the request was read."
    await_true(lambda: len(served.prompts) == 2)
    link.send(Cancel(3))  # the front may have been as fast
    served.model.may_encode.set()
    assert ends(link, 2) == {1: FinishReason.LENGTH, 2: FinishReason.LENGTH}
    assert served.model.num_begun == 2


def test_a_request_whose_deadline_passes_in_the_engine_is_ended_there(served: Stage) -> None:
    link = hold_encoding(served)
    link.send(submit(2, deadline_s=time.monotonic() + 1000))
    served.engine._clock = lambda: time.monotonic() + 2000
    served.model.may_encode.set()
    assert ends(link, 2) == {1: FinishReason.LENGTH, 2: FinishReason.TIMEOUT}


def test_a_refusal_of_a_cancelled_request_is_not_told(served: Stage) -> None:
    served.model.may_encode.clear()
    link = served.join()
    link.send(submit(1, prompt=PlainText("this")))
    link.send(Cancel(1))
    assert len(answer(link, 1)) == 1
    served.model.may_encode.set()
    link.send(submit(2))
    assert len(answer(link, 2)) == 3
