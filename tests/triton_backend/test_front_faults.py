"""What can go wrong around a front: its host goes, comes back or talks nonsense, and nobody is left waiting."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.triton_backend.calls import FakeCall
from tests.triton_backend.front_stage import Clock, FakeDoor, FrontStage
from tests.triton_backend.host_stage import await_true
from triton_backend import front as fronts
from triton_backend.attach import AttachError
from triton_backend.faces.forerun import FORERUN
from triton_backend.front import Front
from triton_backend.link import LinkError
from triton_backend.messages import (
    Busy,
    Cancel,
    Pong,
    Submit,
)
from triton_backend.protocol import strings
from triton_backend.request import FinishReason
from triton_backend.responder import FailureKind


@pytest.fixture
def stage() -> Iterator[FrontStage]:
    made = FrontStage()
    yield made
    made.close()


def test_a_request_that_meets_the_end_of_the_link_fails_with_the_others(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(frame: object) -> None:
        raise LinkError("the link has ended")

    monkeypatch.setattr(stage.host.attached.link, "send_frame", broken)
    call = stage.take()
    assert call.num_ends == 0
    stage.host.link.close()
    call.await_end()
    assert call.failure == fronts.STOPPED


def test_all_requests_fail_at_once_when_the_host_is_gone_and_the_next_host_serves(
    stage: FrontStage,
) -> None:
    calls = [stage.take() for _ in range(4)]
    for _ in calls:
        stage.host.next()
    stage.host.tell(1, "a")
    calls[0].await_responses()
    stage.host.link.close()
    for call in calls:
        call.await_end()
        assert call.failure is not None
        assert call.failure.kind is FailureKind.UNAVAILABLE
        assert "the engine host stopped" in call.failure.message
    await_true(lambda: not stage.front.is_ready())
    absent = stage.take()
    assert absent.failure is not None
    assert absent.failure.kind is FailureKind.UNAVAILABLE
    assert "is being started" in absent.failure.message
    second = stage.new_host()
    await_true(stage.front.is_ready)
    call = stage.take()
    submit = second.next()
    assert isinstance(submit, Submit)
    second.tell(submit.id, "b", FinishReason.STOP)
    call.await_end()
    assert call.text == "b"


def test_a_front_tries_again_until_a_host_serves(
    stage: FrontStage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.host.link.close()
    await_true(lambda: not stage.front.is_ready())
    for _ in range(3):
        stage.door.hosts.put(AttachError("the artifact is gone"))
    second = stage.new_host()
    await_true(stage.front.is_ready)
    stage.take()
    assert isinstance(second.next(), Submit)
    assert caplog.text.count("the artifact is gone") == 1


def test_reasons_that_alternate_are_logged_once_each(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fronts, "MAX_SAID", 3)
    monkeypatch.setattr(fronts, "MAX_DELAY_S", 0.01)
    stage.host.link.close()
    for reason in ["altered", "ended", "altered", "ended", "missing", "another", "altered"]:
        stage.door.hosts.put(AttachError(reason))
    stage.new_host()
    await_true(lambda: stage.front.is_ready() and stage.door.hosts.empty())
    assert caplog.text.count("can't be joined") == 3
    assert [caplog.text.count(each) for each in ("altered", "ended", "missing")] == [1, 1, 1]


def test_a_host_that_lets_pings_pass_is_killed_and_the_next_one_serves(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fronts, "LOST_PINGS", 4)
    call = stage.take()
    stage.let_pings_pass(4)
    stage.host.link.send(Busy(1.0))  # a word, and the count begins again
    await_true(lambda: stage.front._num_unanswered == 0)
    stage.let_pings_pass(4)
    assert call.num_ends == 0
    stage.clock.now_s += fronts.PING_S
    call.await_end()
    assert call.failure == fronts.STOPPED
    assert "does not answer, and is killed" in caplog.text
    serves_again(stage)


def test_time_that_passed_without_pings_is_no_silence(stage: FrontStage) -> None:
    """Whoever stops the host may have stopped the front as well, such as a terminal."""
    call = stage.take()
    stage.clock.now_s += 3600
    stage.host.next_ping()
    assert stage.front.is_ready()
    assert call.num_ends == 0


def test_a_host_that_is_in_a_step_for_too_long_is_killed(
    stage: FrontStage, caplog: pytest.LogCaptureFixture
) -> None:
    call = stage.take()
    stage.host.link.send(Busy(fronts.MAX_STEP_S + 1))
    call.await_end()
    assert call.failure == fronts.STOPPED
    assert "a step of the engine host lasts 601 s; it is killed" in caplog.text
    serves_again(stage)


def test_a_host_that_does_not_read_keeps_nobody_waiting(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "MAX_BACKLOG_BYTES", 15_000_000)
    large = {"text": strings(b"x" * 10_000_000)}
    calls = [stage.take(**large, timeout_s=5.0) for _ in range(2)]
    refused = stage.take(**large)
    refused.await_end()
    assert refused.failure == fronts.BEHIND
    assert [call.num_ends for call in calls] == [0, 0]
    calls[1].has_left = True
    await_true(lambda: stage.front._open[2].is_cancelling)
    stage.clock.now_s += 6.5
    calls[0].await_end()
    assert calls[0].failure == fronts.LATE
    told = [stage.host.next() for _ in range(3)]
    assert [type(message) for message in told] == [Submit, Submit, Cancel]
    await_true(lambda: stage.front._outbox and not stage.front._outbox.num_waiting_bytes)
    stage.take(**large)
    assert isinstance(stage.host.next(), Submit)


def serves_again(stage: FrontStage) -> None:
    """Let a second host come, and be asked."""
    second = stage.new_host()
    await_true(stage.front.is_ready)
    stage.take()
    assert isinstance(second.next(), Submit)


def test_a_host_that_breaks_the_form_is_as_good_as_gone(stage: FrontStage) -> None:
    call = stage.take()
    stage.host.link._socket.sendall(b"\x03\0\0\0abc")
    call.await_end()
    assert call.failure is not None
    assert call.failure.kind is FailureKind.UNAVAILABLE


def test_a_defect_while_it_listens_ends_the_link_and_not_the_front(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = stage.take()
    quote = "words of an answer"

    def broken(items: object) -> None:
        raise ValueError(quote)

    monkeypatch.setattr(stage.front._responder, "add", broken)
    stage.host.tell(1, "a")
    call.await_end()
    assert call.failure == fronts.STOPPED
    monkeypatch.undo()
    second = stage.new_host()
    await_true(stage.front.is_ready)
    again = stage.take()
    assert isinstance(second.next(), Submit)
    second.tell(2, "b", FinishReason.STOP)
    again.await_end()
    assert again.text == "b"


def test_a_call_that_can_not_be_watched_is_cancelled_and_the_others_are_watched_on(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> bool:
        raise RuntimeError

    call = FakeCall()
    monkeypatch.setattr(call, "is_cancelled", broken)
    stage.front.take(call)
    assert [stage.host.next(), stage.host.next()][1] == Cancel(1)
    other = stage.take()
    assert isinstance(stage.host.next(), Submit)
    other.has_left = True
    assert stage.host.next() == Cancel(2)


def test_meters_that_fail_end_nothing(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pong: Pong) -> None:
        raise RuntimeError

    monkeypatch.setattr(stage.front, "_on_pong", broken)
    stage.host.link.send(Pong(1, 2, 30, 4, 5))
    call = stage.take()
    stage.host.tell(1, "a", FinishReason.STOP)
    call.await_end()
    assert call.text == "a"
    assert "the metrics were not brought up to date: RuntimeError" in caplog.text


def test_a_front_closes_while_it_waits_for_a_host(stage: FrontStage) -> None:
    stage.host.link.close()
    await_true(lambda: not stage.front.is_ready())
    stage.front.close()
    assert not any(thread.is_alive() for thread in stage.front._threads)


def test_a_front_does_not_start_without_a_host() -> None:
    door: Any = FakeDoor()
    door.hosts.put(AttachError("no artifact there"))
    front = Front(FORERUN, door, clock=Clock(), on_pong=print)
    with pytest.raises(AttachError, match="no artifact there"):
        front.start()
    assert not front.is_ready()
    front.close()
