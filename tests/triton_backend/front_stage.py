"""A front whose hosts are played by the test: they come, speak, go and come back when it says so."""

import queue
import socket
from typing import Any

from builder.artifact.config import Limits
from tests.triton_backend.calls import PATIENCE_S, FakeCall
from triton_backend.attach import Attached, AttachError
from triton_backend.faces.forerun import FORERUN
from triton_backend.front import PING_S, Front
from triton_backend.link import Link
from triton_backend.messages import (
    VERSION,
    Deltas,
    FromFront,
    FromHost,
    Hello,
    News,
    Ping,
    Pong,
)
from triton_backend.request import FinishReason

HELLO = Hello(VERSION, "ab", 259, Limits(100, 4, 100, 4, 50))


class HostEnd:
    """A host as the front sees it, played by the test."""

    def __init__(self) -> None:
        front, host = socket.socketpair()
        self.attached = Attached(Link(front, FromHost), HELLO, pid=0)
        self.link: Link[FromFront] = Link(host, FromFront)

    def next(self) -> FromFront:
        """The next message that is no ping."""
        while isinstance(message := self.link.receive(), Ping):
            pass
        assert message is not None
        return message

    def next_ping(self) -> None:
        while not isinstance(self.link.receive(), Ping):
            pass

    def tell(self, number: int, text: str, reason: FinishReason | None = None) -> None:
        news = News(
            number,
            (1,),
            text,
            (text.encode(),),
            2,
            1,
            finish_reason=reason,
            is_last=reason is not None,
        )
        self.link.send(Deltas((news,)))


class FakeDoor:
    """A `HostDoor` through which come the hosts, and the failures, that the test puts there."""

    def __init__(self) -> None:
        self.hosts: queue.SimpleQueue[HostEnd | AttachError | None] = queue.SimpleQueue()
        self.current: HostEnd | None = None

    def attach(self) -> Attached:
        found = self.hosts.get(timeout=PATIENCE_S)
        if not isinstance(found, HostEnd):
            raise found or AttachError("the front is closing")
        self.current = found
        return found.attached

    def close(self) -> None:
        self.hosts.put(None)
        if self.current is not None:
            self.current.attached.link.close()


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class FrontStage:
    """A front with one host behind it."""

    def __init__(self) -> None:
        self.hosts: list[HostEnd] = []
        self.clock = Clock()
        self.door = FakeDoor()
        self.pongs: list[Pong] = []
        door: Any = self.door
        self.front = Front(FORERUN, door, clock=self.clock, on_pong=self.pongs.append)
        self.host = self.new_host()
        self.front.start()

    def new_host(self) -> HostEnd:
        host = HostEnd()
        self.hosts.append(host)
        self.door.hosts.put(host)
        return host

    def close(self) -> None:
        self.front.close()
        for host in self.hosts:
            host.link.close()
            host.attached.link.close()

    def let_pings_pass(self, count: int) -> None:
        """Read so many pings, and answer none. A call must be open: only then the front looks all the time."""
        for _ in range(count):
            self.clock.now_s += PING_S
            self.host.next_ping()

    def take(self, **given: Any) -> FakeCall:
        call = FakeCall(**given)
        self.front.take(call)
        return call
