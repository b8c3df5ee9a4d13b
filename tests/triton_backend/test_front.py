"""The front: requests reach the host, its news reach the clients, and its end reaches everybody at once."""

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.triton_backend.calls import PATIENCE_S, FakeCall
from tests.triton_backend.front_stage import Clock, FakeDoor, FrontStage
from tests.triton_backend.host_stage import await_true
from triton_backend import front as fronts
from triton_backend import link as links
from triton_backend.faces.forerun import FORERUN
from triton_backend.faces.vllm import VLLM
from triton_backend.front import Front
from triton_backend.messages import (
    Busy,
    Cancel,
    Claim,
    Deltas,
    Leave,
    News,
    PlainText,
    Pong,
    RefusalKind,
    Refused,
    Submit,
    Terms,
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


def test_what_a_request_says_of_itself_goes_along(stage: FrontStage) -> None:
    call = FakeCall(text=strings(b"hi"), cache_salt=strings(b"mine"))
    call.request_id = "r-7"
    call.parameters = {"tenant": "t", "tenant_expires": 9, "tenant_tag": "ab"}
    stage.front.take(call)
    submit = stage.host.next()
    assert isinstance(submit, Submit)
    assert submit.request_id == "r-7"
    assert submit.terms == Terms(claim=Claim("t", 9, "ab"), cache_salt="mine")


def test_a_call_is_over_when_its_last_choice_is(stage: FrontStage) -> None:
    call = stage.take(text=strings(b"hi"), num_choices=integers(2))
    ends = [(0, "a", False), (1, "b", True)]
    for choice, text, is_last in ends:
        news = News(
            1, (1,), text, (b"x",), 2, 1, FinishReason.LENGTH, choice=choice, is_last=is_last
        )
        stage.host.link.send(Deltas((news,)))
        call.await_responses(choice + 1)
    call.await_end()
    assert [response["choice"] for response in call.responses] == [[0], [1]]


def test_news_become_responses_of_their_own_call(stage: FrontStage) -> None:
    first, second = stage.take(), stage.take()
    news = [
        News(2, (1,), "b", (b"b",), 2, 1),
        News(1, (1,), "a", (b"a",), 2, 1, FinishReason.LENGTH, is_last=True),
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


def test_a_request_that_is_no_unicode_is_refused(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage.front, "_face", VLLM)
    call = FakeCall(text_input=strings(b"hi"))
    call.parameters = {"stop": "\ud800"}
    stage.front.take(call)
    call.await_end()
    assert call.failure is not None
    assert call.failure.kind is FailureKind.INVALID
    assert call.failure.message.endswith("half of a surrogate pair in it; send valid Unicode.")
    assert stage.front._open == {}


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


def test_the_host_hears_when_a_request_ends(stage: FrontStage) -> None:
    stage.take()
    stage.take(timeout_s=5.0)
    told = [stage.host.next() for _ in range(2)]
    assert [submit.deadline_s for submit in told if isinstance(submit, Submit)] == [None, 105.0]


def test_a_deadline_that_the_host_does_not_keep_is_kept_by_the_front(stage: FrontStage) -> None:
    late, patient = stage.take(timeout_s=5.0), stage.take(timeout_s=50.0)
    assert [type(stage.host.next()) for _ in range(2)] == [Submit, Submit]
    stage.host.tell(1, "a")
    late.await_responses()
    stage.clock.now_s += 5 + fronts.OVERDUE_S
    stage.take().has_left = True
    assert isinstance(stage.host.next(), Submit)
    assert stage.host.next() == Cancel(3)  # so it has looked at all
    assert late.num_ends == 0
    stage.clock.now_s += fronts.OVERDUE_S
    late.await_end()
    assert late.failure == fronts.LATE
    assert fronts.LATE.kind is FailureKind.TIMEOUT
    stage.host.tell(1, "", FinishReason.TIMEOUT)  # comes too late to count
    stage.host.tell(2, "b", FinishReason.STOP)
    patient.await_end()
    assert patient.failure is None


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
    stage.take()
    stage.let_pings_pass(fronts.QUIET_PINGS)
    assert stage.front.is_ready()
    stage.let_pings_pass(1)
    assert not stage.front.is_ready()
    stage.host.link.send(Busy(fronts.MAX_STEP_S))
    await_true(stage.front.is_ready)
    stage.let_pings_pass(fronts.QUIET_PINGS + 1)
    assert not stage.front.is_ready()
    stage.host.link.send(Pong(1, 2, 30, 4, 5))
    await_true(stage.front.is_ready)
    assert stage.pongs == [Pong(1, 2, 30, 4, 5)]


def test_a_front_that_closes_takes_its_leave(stage: FrontStage) -> None:
    call = stage.take()
    assert isinstance(stage.host.next(), Submit)
    stage.front.close()
    assert stage.host.next() == Leave()
    assert stage.host.link.receive() is None
    assert call.failure is not None


def test_the_leave_comes_after_all_that_was_said_before(
    stage: FrontStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fronts, "LEAVE_S", PATIENCE_S)
    stage.take(text=strings(b"x" * 5_000_000))
    closing = threading.Thread(target=stage.front.close)
    closing.start()
    assert isinstance(stage.host.next(), Submit)
    assert stage.host.next() == Leave()
    closing.join(PATIENCE_S)
    assert not closing.is_alive()


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
