"""Frames over a socket pair: whole messages or a clear end, whatever the other side sends."""

import socket
import struct
import threading
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_backend import link as links
from triton_backend.link import FrameSizeError, Link, LinkError
from triton_backend.messages import (
    VERSION,
    Cancel,
    Deltas,
    FromFront,
    FromHost,
    Join,
    News,
    Ping,
    PlainText,
    Submit,
)
from triton_backend.request import SamplingParams

encode = msgspec.msgpack.encode


@pytest.fixture
def ends() -> Iterator[tuple[Link[FromFront], socket.socket]]:
    """The host's end of a link, and the bare socket of the front."""
    ours, theirs = socket.socketpair()
    link: Link[FromFront] = Link(ours, FromFront)
    with theirs:
        yield link, theirs
    link.close()


def frame(message: object) -> bytes:
    body = encode(message)
    return struct.pack("<I", len(body)) + body


def submit(text: str) -> Submit:
    return Submit(7, PlainText(text), SamplingParams(seed=2**64 - 1, stop=("é",)))


def test_messages_arrive_whole_and_in_order(ends) -> None:
    host, socket_ = ends
    front: Link[FromHost] = Link(socket_, FromHost)
    sent = [Join(VERSION, "forerun"), submit("héllo"), Cancel(7), Ping()]
    for message in sent:
        front.send(message)
    assert [host.receive() for _ in sent] == sent
    host.send(Deltas((News(7, (1, 2), "é", (b"\xc3", b"\xa9"), 3, 2),)))
    assert front.receive() == Deltas((News(7, (1, 2), "é", (b"\xc3", b"\xa9"), 3, 2),))
    front.close()


def test_a_message_that_comes_byte_by_byte_is_whole(ends) -> None:
    host, front = ends
    data = frame(submit("abc"))

    def dribble() -> None:
        for place in range(len(data)):
            front.send(data[place : place + 1])

    thread = threading.Thread(target=dribble)
    thread.start()
    assert host.receive() == submit("abc")
    thread.join()


def test_a_message_larger_than_every_buffer_is_sent_while_the_other_side_reads(ends) -> None:
    host, socket_ = ends
    front: Link[FromHost] = Link(socket_, FromHost)
    message = submit("x" * 5_000_000)
    thread = threading.Thread(target=front.send, args=(message,))
    thread.start()
    assert host.receive() == message
    thread.join()


def test_frames_of_several_threads_do_not_mix(ends) -> None:
    host, socket_ = ends
    front: Link[FromHost] = Link(socket_, FromHost)
    messages = [submit(str(number) * 100_000) for number in range(4)]

    def send(message: Submit) -> None:
        for _ in range(5):
            front.send(message)

    threads = [threading.Thread(target=send, args=(message,)) for message in messages]
    for thread in threads:
        thread.start()
    assert all(host.receive() in messages for _ in range(20))
    for thread in threads:
        thread.join()


def test_the_end_of_a_link_is_none(ends) -> None:
    host, front = ends
    front.close()
    assert host.receive() is None


def test_closing_wakes_who_waits(ends) -> None:
    host, _ = ends
    heard: list[object] = ["nothing"]
    thread = threading.Thread(target=lambda: heard.append(host.receive()))
    thread.start()
    host.close()
    thread.join(10)
    assert heard == ["nothing", None]
    host.close()
    assert host.receive() is None


def test_a_side_that_is_silent_for_too_long_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(0.05)
    host: Link[FromFront] = Link(ours, FromFront)
    theirs.sendall(frame(Ping()))
    assert host.receive() == Ping()
    assert host.receive() is None
    host.close()
    theirs.close()


def test_a_side_that_does_not_read_for_too_long_is_gone() -> None:
    ours, theirs = socket.socketpair()
    ours.settimeout(0.05)
    host: Link[FromFront] = Link(ours, FromFront)
    with pytest.raises(LinkError, match="the link has ended: timed out"):
        host.send(submit("x" * 5_000_000))
    assert host.receive() is None
    theirs.close()


def test_a_closed_link_refuses_to_send(ends) -> None:
    host, front = ends
    front.close()
    for _ in range(2):
        with pytest.raises(LinkError, match="the link has ended"):
            host.send(Ping())


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\x01", "ended inside a frame"),
        (frame(Ping())[:-1], "ended inside a frame"),
        (struct.pack("<I", 2**32 - 1), "announces 4294967295 bytes"),
        (struct.pack("<I", links.MAX_FRAME_BYTES + 1), "announces 33554433 bytes"),
        (struct.pack("<I", 0), "holds no message"),
        (struct.pack("<I", 3) + b"\xc1\xc1\xc1", "holds no message"),
        (frame(["nonsense", 1]), r"holds no message \(ValidationError\)$"),
        (frame({"type": "ping"}), "holds no message"),
        (frame(["cancel", "x"]), "holds no message"),
        (frame(["submit", 1, ["text", "secret"], {"top_k": -5}]), r"no message \(RequestError\)$"),
        (frame(["submit", 1, ["text", "secret"], {"top_k": "secret"}]), "holds no message"),
        (struct.pack("<I", 5000) + b"\x91" * 5000, "holds no message"),
        (struct.pack("<I", 10) + b"\x93\xa6submit\x01\xa1"[:9] + b"\xff", "holds no message"),
    ],
)
def test_what_is_no_message_ends_the_link_with_a_reason(ends, data: bytes, message: str) -> None:
    host, front = ends
    front.sendall(data)
    front.close()
    with pytest.raises(LinkError, match=message) as caught:
        host.receive()
    assert "secret" not in str(caught.value)


@given(data=st.binary(max_size=200))
def test_no_bytes_do_anything_else(data: bytes) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(struct.pack("<I", len(data)) + data)
    host: Link[FromFront] = Link(ours, FromFront)
    try:
        host.receive()
    except LinkError:
        pass
    finally:
        host.close()


@given(place=st.integers(0, 60), value=st.integers(0, 255))
def test_no_damage_does_anything_else(place: int, value: int) -> None:
    body = bytearray(encode(submit("a prompt of some length")))
    body[place % len(body)] = value
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.sendall(struct.pack("<I", len(body)) + body)
    host: Link[FromFront] = Link(ours, FromFront)
    try:
        host.receive()
    except LinkError:
        pass
    finally:
        host.close()


def test_a_message_too_large_is_refused_and_the_link_goes_on(
    ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_FRAME_BYTES", 100)
    host, socket_ = ends
    front: Link[FromHost] = Link(socket_, FromHost)
    with pytest.raises(FrameSizeError, match="at most 100 fit"):
        front.send(submit("x" * 200))
    front.send(Ping())
    assert host.receive() == Ping()
