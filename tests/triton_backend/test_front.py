"""The front: requests reach the host, its news reach the clients, and its end reaches everybody at once."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.triton_backend.calls import FakeCall
from tests.triton_backend.front_stage import Clock, FakeDoor, FrontStage
from tests.triton_backend.host_stage import await_true
from triton_backend import front as fronts
from triton_backend import link as links
from triton_backend.attach import AttachError
from triton_backend.faces.forerun import FORERUN
from triton_backend.front import Front
from triton_backend.link import LinkError
from triton_backend.messages import (
    Cancel,
    Deltas,
    Leave,
    News,
    PlainText,
    Pong,
    RefusalKind,
    Refused,
    Submit,
)
from triton_backend.protocol import integers, strings
from triton_backend.request import FinishReason, SamplingParams
from triton_backend.responder import FailureKind


@pytest.fixture
def stage() -> Iterator[FrontStage]:
    made = FrontStage()
    yield made
    made.close()


def test_a_request_goes_to_the_host_as_the_face_read_it(stage: FrontStage) -> None:
    stage.take(text=strings(b"hi"), max_tokens=integers(5))
    assert stage.host.next() == Submit(1, PlainText("hi"), SamplingParams(max_tokens=5))
    stage.take(text=strings(b"ho"))
    assert stage.host.next() == Submit(2, PlainText("ho"), SamplingParams())


def test_news_become_responses_of_their_own_call(stage: FrontStage) -> None:
    first, second = stage.take(), stage.take()
    news = [
        News(2, (1,), "b", (b"b",), 2, 1),
        News(1, (1,), "a", (b"a",), 2, 1, FinishReason.LENGTH),
    ]
    stage.host.link.send(Deltas(tuple(news)))
    first.await_end()
    second.await_responses()
    assert (first.text, second.text, second.num_ends) == ("a", "b", 0)
    stage.host.tell(2, "c", FinishReason.STOP)
    second.await_end()
    assert second.text == "bc"


def test_what_the_face_refuses_never_reaches_the_host(stage: FrontStage) -> None:
    refused = stage.take(text=strings(b"hi"), max_tokens=integers(0))
    assert refused.failure is not None
    assert refused.failure.kind is FailureKind.INVALID
    assert "max_tokens must be an integer from 1" in refused.failure.message
    wrong = stage.take(text=integers(3))
    assert wrong.failure is not None
    stage.take()
    message = stage.host.next()
    assert isinstance(message, Submit)
    assert message.id == 1


@pytest.mark.parametrize("kind", list(RefusalKind))
def test_what_the_host_refuses_fails_with_its_reason(stage: FrontStage, kind: RefusalKind) -> None:
    call = stage.take()
    stage.host.link.send(Refused(1, kind, "the reason."))
    call.await_end()
    assert call.failure is not None
    assert (call.failure.kind, call.failure.message) == (kind.value, "the reason.")


def test_a_request_larger_than_a_frame_is_refused(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "MAX_FRAME_BYTES", 1000)
    call = stage.take(text=strings(b"x" * 2000))
    call.await_end()
    assert call.failure is not None
    assert call.failure.kind is FailureKind.INVALID
    assert "is too large" in call.failure.message
    other = stage.take()
    assert isinstance(stage.host.next(), Submit)
    stage.host.tell(2, "a", FinishReason.STOP)
    other.await_end()


def test_a_request_that_meets_the_end_of_the_link_fails_with_the_others(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(message: object) -> None:
        raise LinkError("the link has ended")

    monkeypatch.setattr(stage.host.attached.link, "send", broken)
    call = stage.take()
    assert call.num_ends == 0
    stage.host.link.close()
    call.await_end()
    assert call.failure == fronts.STOPPED


def test_a_client_that_leaves_cancels_its_request_once(stage: FrontStage) -> None:
    call, other = stage.take(), stage.take()
    assert [type(stage.host.next()) for _ in range(2)] == [Submit, Submit]
    call.has_left = True
    assert stage.host.next() == Cancel(1)
    other.has_left = True
    assert stage.host.next() == Cancel(2)
    stage.host.tell(1, "", FinishReason.CANCELLED)
    call.await_end()
    assert call.failure is not None
    assert call.failure.kind is FailureKind.CANCELLED


def test_a_request_whose_time_is_up_fails_and_is_cancelled(stage: FrontStage) -> None:
    late, patient = stage.take(timeout_s=5.0), stage.take(timeout_s=50.0)
    assert [type(stage.host.next()) for _ in range(2)] == [Submit, Submit]
    stage.host.tell(1, "a")
    late.await_responses()
    stage.clock.now_s += 6
    assert stage.host.next() == Cancel(1)
    late.await_end()
    assert late.failure is not None
    assert late.failure.kind is FailureKind.UNAVAILABLE
    assert late.failure.message == "the timeout of the request has passed."
    stage.host.tell(1, "", FinishReason.CANCELLED)  # comes too late to count
    stage.host.tell(2, "b", FinishReason.STOP)
    patient.await_end()
    assert patient.failure is None


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


def test_news_of_what_is_unknown_or_over_is_no_harm(stage: FrontStage) -> None:
    call = stage.take()
    stage.host.tell(99, "x")
    stage.host.link.send(Refused(98, RefusalKind.INTERNAL, "?"))
    stage.host.tell(1, "a", FinishReason.STOP)
    stage.host.tell(1, "b")
    call.await_end()
    assert call.text == "a"
    assert stage.front.is_ready()


def test_a_front_is_ready_while_its_host_gives_signs_of_life(stage: FrontStage) -> None:
    assert stage.front.is_ready()
    stage.clock.now_s += fronts.ALIVE_S + 1
    assert not stage.front.is_ready()
    stage.host.next_ping()
    stage.host.link.send(Pong(1, 2, 30, 4, 5, 6))
    await_true(stage.front.is_ready)
    assert stage.pongs == [Pong(1, 2, 30, 4, 5, 6)]


def test_meters_that_fail_end_nothing(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(pong: Pong) -> None:
        raise RuntimeError

    monkeypatch.setattr(stage.front, "_on_pong", broken)
    stage.host.link.send(Pong(1, 2, 30, 4, 5, 6))
    call = stage.take()
    stage.host.tell(1, "a", FinishReason.STOP)
    call.await_end()
    assert call.text == "a"
    assert "the metrics were not brought up to date: RuntimeError" in caplog.text


def test_a_front_that_closes_takes_its_leave(stage: FrontStage) -> None:
    call = stage.take()
    assert isinstance(stage.host.next(), Submit)
    stage.front.close()
    assert stage.host.next() == Leave()
    assert stage.host.link.receive() is None
    assert call.failure is not None


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


def test_an_idle_front_takes_no_time_of_the_processor(stage: FrontStage) -> None:
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.1


def test_many_calls_are_watched_less_often() -> None:
    waits: list[float] = []
    door: Any = FakeDoor()
    front = Front(FORERUN, door, clock=Clock(), on_pong=print)
    front._is_closing.wait = waits.append  # type: ignore[method-assign,assignment]
    for count in (1, 33, 100):
        front._rest(count)
    assert waits == pytest.approx([0.02, 0.02, 0.06])
    del front._is_closing.wait
    front.close()


def test_numbers_of_numpy_never_reach_the_link(stage: FrontStage) -> None:
    stage.take(
        token_ids=integers(1, 2),
        seed=np.array([7], np.int64),
        stop_token_ids=integers(3),
        ignore_eos=np.array([True]),
    )
    submit = stage.host.next()
    assert isinstance(submit, Submit)
    assert submit.params == SamplingParams(seed=7, stop_token_ids=(3,), ignore_eos=True)
