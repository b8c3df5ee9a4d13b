"""Responses of the face become deltas of answers."""

from typing import Any

import pytest

from tests.triton_backend.openai.fake_face import PROMPT_LOGPROB, FakeFace
from tests.triton_backend.openai.making import PROMPT, answer, ask
from tests.triton_backend.openai.scripts import saying, saying_each
from triton_backend.faces.forerun import FORERUN
from triton_backend.openai import deltas
from triton_backend.openai.asks import Ask, token_ids_prompt
from triton_backend.openai.deltas import AnswerDelta, Candidate, ToldPrompt, ToldToken
from triton_backend.openai.errors import ApiError
from triton_backend.request import FinishReason, SamplingParams


def test_the_outputs_that_are_asked_for_are_those_of_the_face() -> None:
    known = {tensor.name for tensor in FORERUN.outputs}
    assert {*deltas.TEXT_OUTPUTS, *deltas.TOKEN_OUTPUTS, *deltas.PROMPT_OUTPUTS} <= known


def test_deltas_come_as_the_face_sends_them(face: FakeFace, address: str) -> None:
    face.script = saying("Hé", "", finish_reason="length")
    assert answer(address, ask()) == [
        (0, AnswerDelta("Hé", None, 2, 3, 1, ())),
        (0, AnswerDelta("", None, 2, 3, 1, ())),
        (0, AnswerDelta("", FinishReason.LENGTH, 2, 3, 1, ())),
    ]


@pytest.mark.parametrize(
    ("num_top", "top"), [(0, ()), (2, (Candidate(65, b"A", -0.5), Candidate(66, b"B", -1.5)))]
)
def test_logprobs_come_with_their_tokens(
    num_top: int, top: tuple[Any, ...], face: FakeFace, address: str
) -> None:
    face.script = saying("A", "")
    first, second, _ = answer(address, ask(logprobs=num_top))
    assert first[1].tokens == (ToldToken(Candidate(65, b"A", -0.5), 1, top),)
    assert second[1].tokens == ()


@pytest.mark.parametrize(("reason", "status"), [("cancelled", 499), ("error", 500)])
def test_an_answer_that_ends_badly_is_an_error(
    reason: str, status: int, face: FakeFace, address: str
) -> None:
    face.script = saying("x", finish_reason=reason)
    with pytest.raises(ApiError) as caught:
        answer(address, ask())
    assert caught.value.status == status


def test_a_prompt_comes_with_the_first_news_of_choice_0(face: FakeFace, address: str) -> None:
    face.script = saying_each("a", "b")
    told = [delta.prompt for _, delta in answer(address, ask(num_choices=2, prompt_logprobs=1))]
    i = Candidate(ord("i"), b"i", PROMPT_LOGPROB)
    assert told == [ToldPrompt(ord("H"), b"H", (ToldToken(i, 1, (i,)),)), None, None, None]


def test_a_prompt_of_one_token_has_a_first_and_no_others(face: FakeFace, address: str) -> None:
    params = SamplingParams(prompt_logprobs=0)
    only = Ask(token_ids_prompt([7]), params, is_streamed=False)
    ((_, delta),) = answer(address, only)
    assert delta.prompt == ToldPrompt(7, b"\x07", ())


@pytest.mark.parametrize("reason", ["stop", "length"])
def test_an_answer_that_nobody_wants_is_empty(reason: str, face: FakeFace, address: str) -> None:
    face.script = saying("x", finish_reason=reason)
    unwanted = Ask(PROMPT, SamplingParams(logprobs=0), is_streamed=True, wants_answer=False)
    told = [delta for _, delta in answer(address, unwanted)]
    assert [(each.text, each.tokens, each.num_generated_tokens) for each in told] == [
        ("", (), 0)
    ] * 2
    assert [each.finish_reason for each in told] == [None, FinishReason.LENGTH]
