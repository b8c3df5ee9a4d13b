"""What the watch does, look by look, about a stub that died: on a server that does what the test says."""

import errno
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from triton_backend.launcher import family, watch
from triton_backend.launcher.watch import DELAYS_S, LATE_S, StubWatch

AGAIN = "the front of a died; it was loaded again"
FAILED = "reason\nthe front of a died and can't be loaded again; next try in {:g} s"


@dataclass
class Server:
    """A server, its mirror, its readiness and its log in one, and a clock that the test turns."""

    stubs: dict[str, int]
    ready: set[str]
    now_s: float = 0.0
    done: list[str] = field(default_factory=list)
    mark: str = "mark"
    log_size: int = 7

    mirror = readiness = property(lambda self: self)

    def take_out(self, model: str) -> None:
        self.done.append(f"out {model}")

    def put_back(self, model: str) -> None:
        self.done.append(f"back {model}")

    def is_model_ready(self, model: str) -> bool:
        return model in self.ready

    def log_tail(self, start: int) -> str:
        assert start == 7
        return "reason"

    def close_regions(self) -> None:
        if self.stubs.get("kernel") == 0:
            raise OSError(errno.EMFILE, "Too many open files")

    def fail(self, looking: StubWatch) -> list[str]:
        """Let the attempt to load `a` fail: its stub is seen, and then it is not."""
        self.stubs["a"] = 2
        assert looking.look() == []
        del self.stubs["a"]
        return looking.look()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server({"a": 1, "b": 1}, {"a", "b"})
    monkeypatch.setattr(family, "members", lambda _: [])
    monkeypatch.setattr(family, "stubs_among", lambda _: dict(made.stubs))
    monkeypatch.setattr(watch.family, "is_alive", lambda stub: stub in made.stubs.values())
    return made


@pytest.fixture
def looking(server: Server) -> StubWatch:
    """Watch, with one look behind it."""
    made = StubWatch(cast("Any", server), ("a", "b"), clock=lambda: server.now_s)
    assert made.look() == []
    return made


def kill(server: Server) -> None:
    """Let the stub of `a` end; that of `b` lives."""
    server.stubs = {"b": 3}


def test_while_all_live_nothing_is_done(server: Server, looking: StubWatch) -> None:
    assert looking.look() == []
    assert server.done == []


def test_a_dead_front_is_taken_out_and_put_back_when_it_is_unloaded(
    server: Server, looking: StubWatch
) -> None:
    kill(server)
    assert looking.look() == []
    assert looking.look() == []
    assert server.done == ["out a"], "Triton calls it ready still"
    server.ready = {"b"}
    assert looking.look() == []
    assert server.done == ["out a", "back a"]
    server.stubs["a"] = 2
    assert looking.look() == []
    server.ready = {"a", "b"}
    assert looking.look() == [AGAIN]
    assert looking.look() == []
    assert server.done == ["out a", "back a"]


def test_a_front_that_died_again_is_loaded_again(server: Server, looking: StubWatch) -> None:
    for _ in range(2):
        kill(server)
        server.ready = {"b"}
        assert looking.look() == []
        server.stubs["a"] = 2
        server.ready = {"a", "b"}
        assert looking.look() == [AGAIN]
        assert looking.look() == []
    assert server.done == ["out a", "back a"] * 2


def test_a_front_that_can_t_be_loaded_is_tried_on_ever_more_seldom(
    server: Server, looking: StubWatch
) -> None:
    kill(server)
    server.ready = {"b"}
    assert looking.look() == []
    for delay_s in (*DELAYS_S, DELAYS_S[-1]):
        assert server.fail(looking) == [FAILED.format(delay_s)]
        assert server.done[-1] == "out a"
        server.now_s += delay_s - 0.5
        assert looking.look() == []
        assert server.done[-1] == "out a"
        server.now_s += 0.5
        assert looking.look() == []
        assert server.done[-1] == "back a"
    server.ready = {"a", "b"}
    assert looking.look() == [AGAIN]


def test_a_failure_that_was_seen_late_is_left_to_triton(server: Server, looking: StubWatch) -> None:
    """It may be loading again by now, and would wait for ever for a stub without its files."""
    kill(server)
    server.ready = {"b"}
    looking.look()
    server.stubs["a"] = 2
    looking.look()
    del server.stubs["a"]
    server.now_s += 1.0
    assert looking.look() == []
    assert server.done == ["out a", "back a"]
    assert server.fail(looking) == [FAILED.format(DELAYS_S[0])]


def test_another_front_is_loaded_again_meanwhile(server: Server, looking: StubWatch) -> None:
    kill(server)
    server.ready = {"b"}
    looking.look()
    server.fail(looking)
    server.stubs = {}
    server.ready = set()
    looking.look()
    server.stubs = {"b": 4}
    server.ready = {"b"}
    assert looking.look() == [AGAIN.replace("of a", "of b")]


@pytest.mark.parametrize(("ready", "verb"), [({"a", "b"}, "unload"), ({"b"}, "load")])
def test_a_server_that_does_nothing_is_told_of_once(
    server: Server, looking: StubWatch, ready: set[str], verb: str
) -> None:
    kill(server)
    server.ready = ready
    assert looking.look() == []
    server.now_s += LATE_S
    (said,) = looking.look()
    assert said.startswith(f"Triton does not {verb} a, whose front died; the others are served on")
    assert looking.look() == []


def test_an_error_of_the_kernel_is_no_verdict(server: Server, looking: StubWatch) -> None:
    kill(server)
    server.stubs["kernel"] = 0
    assert looking.look() == []
    assert server.done == []
    del server.stubs["kernel"]
    looking.look()
    assert server.done == ["out a"]
