"""The outbox of a front: what is sent goes out in order, and whoever sends never waits."""

import socket
from collections.abc import Iterator

import pytest

from tests.triton_backend.host_stage import PATIENCE_S, await_true
from triton_backend import link as links
from triton_backend.link import FrameSizeError, Link
from triton_backend.messages import Cancel, FromFront, FromHost, Leave, PlainText, Submit
from triton_backend.outbox import Outbox
from triton_backend.request import SamplingParams

LARGE = Submit(1, PlainText("x" * 5_000_000), SamplingParams())
"""Larger than what a socket holds."""


@pytest.fixture
def ends() -> Iterator[tuple[Outbox, Link[FromFront]]]:
    """An outbox, and the end of the link that it sends to."""
    front, host = socket.socketpair()
    ours: Link[FromHost] = Link(front, FromHost)
    theirs: Link[FromFront] = Link(host, FromFront)
    outbox = Outbox(ours)
    yield outbox, theirs
    outbox.end()
    for link in (ours, theirs):
        link.close()
    outbox.wait_until_ended(PATIENCE_S)
    assert not outbox._thread.is_alive()


def test_whoever_sends_does_not_wait_for_a_host_that_does_not_read(ends) -> None:
    outbox, host = ends
    sent = [LARGE, *map(Cancel, range(100)), LARGE]
    for message in sent:
        outbox.send(message)
    assert outbox.num_waiting_bytes > 10_000_000
    assert [host.receive() for _ in sent] == sent
    await_true(lambda: outbox.num_waiting_bytes == 0)


def test_what_was_sent_before_the_end_arrives_and_nothing_after_it(ends) -> None:
    outbox, host = ends
    outbox.send(LARGE)
    outbox.send(Leave())
    outbox.end()
    outbox.send(Cancel(1))
    assert (host.receive(), host.receive()) == (LARGE, Leave())
    outbox.wait_until_ended(PATIENCE_S)
    assert not outbox._thread.is_alive()


def test_waiting_for_the_end_has_an_end_itself(ends) -> None:
    outbox, _ = ends
    outbox.send(LARGE)
    outbox.end()
    outbox.wait_until_ended(0.01)
    assert outbox._thread.is_alive()


def test_a_message_that_is_too_large_is_told_at_once_and_the_others_go_on(
    ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox, host = ends
    monkeypatch.setattr(links, "MAX_FRAME_BYTES", 1000)
    with pytest.raises(FrameSizeError):
        outbox.send(LARGE)
    outbox.send(Leave())
    assert host.receive() == Leave()


def test_sending_over_a_link_that_has_ended_is_void(ends) -> None:
    outbox, host = ends
    host.close()
    for _ in range(3):
        outbox.send(LARGE)
    outbox.wait_until_ended(PATIENCE_S)
    assert not outbox._thread.is_alive()
