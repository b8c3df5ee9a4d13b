"""The responder: in order, merged when it lags, the first never held up, each call ended once."""

import logging
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton_backend.calls import OUTPUTS, PATIENCE_S, FakeCall
from triton_backend.faces.forerun import FORERUN
from triton_backend.messages import News
from triton_backend.protocol import Inputs
from triton_backend.request import FinishReason
from triton_backend.responder import Failure, FailureKind, OpenCall, Responder

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@pytest.fixture
def responder() -> Iterator[Responder]:
    made = Responder()
    yield made
    made.close()


def opened(call: FakeCall, *, streams: bool = True) -> OpenCall:
    ask = FORERUN.read(Inputs(FORERUN.inputs, call.tensors), {}, OUTPUTS)
    return OpenCall(call, ask if streams else type(ask)(ask.prompt, ask.params, False, ask.write))


def news(place: int, *, last: bool = False) -> News:
    letter = LETTERS[place % 26]
    reason = FinishReason.LENGTH if last else None
    return News(1, (place,), letter, (letter.encode(),), 3, place + 1, reason, is_last=last)


def held_up(responder: Responder) -> tuple[FakeCall, OpenCall]:
    """Let the responder hang in the first response of some call."""
    call = FakeCall()
    call.gate = threading.Event()
    open_call = opened(call)
    responder.add([(open_call, news(0))])
    assert call.is_held_up.wait(PATIENCE_S)
    return call, open_call


def test_each_news_is_a_response_while_the_responder_keeps_up(responder: Responder) -> None:
    call = FakeCall()
    open_call = opened(call)
    for place in range(5):
        responder.add([(open_call, news(place, last=place == 4))])
        call.await_responses(place + 1)
    assert [response["token_ids"] for response in call.responses] == [[0], [1], [2], [3], [4]]
    assert call.num_ends == 1


def test_news_is_merged_while_the_responder_lags(responder: Responder) -> None:
    slow, slow_call = held_up(responder)
    for place in range(1, 20):
        responder.add([(slow_call, news(place, last=place == 19))])
    assert slow.gate is not None
    slow.gate.set()
    slow.await_end()
    assert [response["token_ids"] for response in slow.responses] == [[0], [*range(1, 20)]]
    assert slow.text == LETTERS[:20]
    assert slow.responses[-1]["num_generated_tokens"] == [20]
    assert slow.responses[-1]["finish_reason"] == [b"length"]


def test_a_first_response_goes_before_those_that_wait(responder: Responder) -> None:
    order: list[str] = []

    class Named(FakeCall):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

        def respond(self, tensors, *, is_last):
            super().respond(tensors, is_last=is_last)
            order.append(self.name)

    old = [Named(f"old{number}") for number in range(3)]
    old_calls = [opened(call) for call in old]
    responder.add([(open_call, news(0)) for open_call in old_calls])
    for call in old:
        call.await_responses()
    order.clear()
    slow, _ = held_up(responder)
    responder.add([(open_call, news(1)) for open_call in old_calls])
    new = [Named("new0"), Named("new1")]
    responder.add([(opened(call), news(0)) for call in new])
    assert slow.gate is not None
    slow.gate.set()
    for call in old:
        call.await_responses(2)
    assert order == ["new0", "new1", "old0", "old1", "old2"]


def test_an_answer_that_is_not_streamed_comes_once_and_whole(responder: Responder) -> None:
    call = FakeCall()
    open_call = opened(call, streams=False)
    for place in range(6):
        responder.add([(open_call, news(place, last=place == 5))])
    call.await_end()
    (response,) = call.responses
    assert (response["token_ids"], response["text"]) == ([0, 1, 2, 3, 4, 5], [b"abcdef"])


@given(cuts=st.lists(st.integers(1, 4), min_size=1, max_size=8), num_calls=st.integers(1, 4))
def test_whatever_lags_every_answer_is_whole_and_in_order(cuts: list[int], num_calls: int) -> None:
    responder = Responder()
    calls = [FakeCall() for _ in range(num_calls)]
    open_calls = [opened(call, streams=number % 2 == 0) for number, call in enumerate(calls)]
    total = sum(cuts)
    for place in range(total):
        responder.add([(each, news(place, last=place == total - 1)) for each in open_calls])
    responder.close()
    expected = "".join(LETTERS[place % 26] for place in range(total))
    for call in calls:
        assert (call.text, call.num_ends) == (expected, 1)
        assert sum(len(response["token_ids"]) for response in call.responses) == total


@pytest.mark.parametrize(
    ("reason", "error", "failure"),
    [
        (FinishReason.ERROR, "it broke", Failure(FailureKind.INTERNAL, "it broke")),
        (FinishReason.INVALID, "it bans all", Failure(FailureKind.INVALID, "it bans all")),
        (FinishReason.ERROR, None, Failure(FailureKind.INTERNAL, "the engine failed.")),
        (
            FinishReason.CANCELLED,
            None,
            Failure(FailureKind.CANCELLED, "the request was cancelled."),
        ),
    ],
)
def test_an_answer_that_did_not_come_to_its_end_fails(
    responder: Responder, reason: FinishReason, error: str | None, failure: Failure
) -> None:
    call = FakeCall()
    responder.add([(opened(call), News(1, (), "", (), 3, 1, reason, error=error, is_last=True))])
    call.await_end()
    assert call.failure == failure


def test_a_failure_ends_a_call_and_drops_what_was_not_sent(responder: Responder) -> None:
    slow, slow_call = held_up(responder)
    responder.add([(slow_call, news(1))])
    responder.fail(slow_call, Failure(FailureKind.UNAVAILABLE, "gone"))
    assert slow.gate is not None
    slow.gate.set()
    slow.await_end()
    assert len(slow.responses) == 1
    assert slow.failure == Failure(FailureKind.UNAVAILABLE, "gone")


def test_a_call_that_can_not_be_answered_stops_no_other(
    responder: Responder, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    quote = "words of an answer"

    class Broken(FakeCall):
        def respond(self, *_, **__):
            raise RuntimeError(quote)

    broken = Broken()
    responder.add([(opened(broken), news(0))])
    call = FakeCall()
    responder.add([(opened(call), news(0, last=True))])
    call.await_end()
    assert broken.failure == Failure(FailureKind.INTERNAL, "a response could not be sent.")
    assert "RuntimeError" in caplog.text
    assert quote not in caplog.text


def test_closing_sends_what_is_there() -> None:
    responder = Responder()
    call = FakeCall()
    responder.add([(opened(call), news(0, last=True))])
    responder.close()
    assert call.num_ends == 1


def of_choice(choice: int, place: int, *, ends: bool = False, is_last: bool = False) -> News:
    reason = FinishReason.LENGTH if ends else None
    return News(1, (place,), "x", (b"x",), 3, place + 1, reason, choice=choice, is_last=is_last)


def test_choices_that_were_not_sent_yet_are_merged_each_for_itself(responder: Responder) -> None:
    call = FakeCall()
    call.gate = threading.Event()
    open_call = opened(call)
    responder.add([(open_call, of_choice(0, 0))])
    assert call.is_held_up.wait(PATIENCE_S)
    for each in (
        of_choice(1, 0),
        of_choice(0, 1),
        of_choice(1, 1, ends=True, is_last=False),
        of_choice(0, 2, ends=True, is_last=True),
    ):
        responder.add([(open_call, each)])
    call.gate.set()
    call.await_end()
    heard = [(response["choice"], response["token_ids"]) for response in call.responses]
    assert heard == [([0], [0]), ([1], [0, 1]), ([0], [1, 2])]
    assert call.num_ends == 1


def test_without_streaming_each_choice_is_one_response_when_all_are_over(
    responder: Responder,
) -> None:
    call = FakeCall()
    open_call = opened(call, streams=False)
    responder.add([(open_call, of_choice(0, 0, ends=True))])
    responder.add([(open_call, of_choice(1, 0, ends=True, is_last=True))])
    call.await_end()
    assert [response["choice"] for response in call.responses] == [[0], [1]]


def test_a_choice_that_fails_ends_the_call_and_the_others_are_not_heard(
    responder: Responder,
) -> None:
    call = FakeCall()
    open_call = opened(call)
    broken = News(1, (), "", (), 3, 1, FinishReason.ERROR, error="broken", choice=1)
    responder.add([(open_call, broken)])
    call.await_end()
    responder.add([(open_call, of_choice(0, 0, ends=True, is_last=True))])
    responder.close()
    assert (call.responses, call.num_ends) == ([], 1)


def test_a_deadline_that_passed_is_told_as_such(responder: Responder) -> None:
    call = FakeCall()
    late = News(
        1, (), "", (), 3, 1, FinishReason.TIMEOUT, error="the deadline passed.", is_last=True
    )
    responder.add([(opened(call), late)])
    call.await_end()
    assert call.failure == Failure(FailureKind.TIMEOUT, "the deadline passed.")
