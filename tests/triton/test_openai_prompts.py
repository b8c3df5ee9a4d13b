"""Prompts told through the real server to the openai package: echo, log-probabilities, and deadlines that pass."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.triton.serving import FORERUN, Served
from tests.triton.shims import client_of, shim_before
from triton_backend.openai.settings import ServedModel

PROMPT = "Hello"
LETTERS = {"structured_outputs": {"regex": "[a-z]{8}"}}
"""Keeps the answer to tokens that text spells; what is told of a token is from before that."""


@pytest.fixture(scope="module")
def client(triton: Served, tiny_artifact: Path) -> Iterator[openai.OpenAI]:
    model = ServedModel(FORERUN, tiny_artifact)
    with shim_before(triton, model) as shim, client_of(shim) as client:
        yield client


@pytest.fixture(scope="module")
def drawn(client: openai.OpenAI) -> Any:
    """Give an answer, with what was told of its tokens when they were drawn."""
    answer = client.completions.create(
        model=FORERUN, prompt=PROMPT, temperature=1, seed=3, logprobs=2, extra_body=LETTERS
    )
    return answer.choices[0]


@pytest.mark.parametrize("as_ids", [False, True])
def test_an_echo_tells_of_a_token_what_was_told_when_it_was_drawn(
    as_ids: bool, client: openai.OpenAI, drawn: Any
) -> None:
    text = PROMPT + drawn.text
    prompt = [*text.encode()] if as_ids else text
    echo = client.completions.create(
        model=FORERUN, prompt=prompt, echo=True, logprobs=2, max_tokens=0
    )
    (choice,) = echo.choices
    assert choice.text == text
    assert choice.logprobs.tokens == [*text]
    assert choice.logprobs.text_offset == [*range(len(text))]
    assert choice.logprobs.token_logprobs[0] is choice.logprobs.top_logprobs[0] is None
    assert choice.logprobs.token_logprobs[len(PROMPT) :] == drawn.logprobs.token_logprobs
    assert choice.logprobs.top_logprobs[len(PROMPT) :] == drawn.logprobs.top_logprobs
    assert echo.usage.completion_tokens == 0


@pytest.mark.parametrize("n", [1, 3])
def test_a_streamed_echo_is_the_whole_one(n: int, client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {
        "model": FORERUN,
        "prompt": [PROMPT, "Hi there"],
        "echo": True,
        "logprobs": 1,
        "max_tokens": 3,
        "seed": 5,
        "n": n,
    }
    whole = client.completions.create(**asked)
    texts = {choice.index: "" for choice in whole.choices}
    logprobs: dict[int, list[float | None]] = {choice.index: [] for choice in whole.choices}
    for chunk in client.completions.create(**asked, stream=True):
        (piece,) = chunk.choices
        texts[piece.index] += piece.text
        logprobs[piece.index] += piece.logprobs.token_logprobs if piece.logprobs else []
    assert texts == {choice.index: choice.text for choice in whole.choices}
    assert logprobs == {choice.index: choice.logprobs.token_logprobs for choice in whole.choices}
    assert [text.startswith("Hello") for text in texts.values()] == [True] * n + [False] * n


def test_prompt_logprobs_have_vllms_shape_in_completions_and_chats(
    client: openai.OpenAI, drawn: Any
) -> None:
    text = PROMPT + drawn.text
    asked = {"max_tokens": 1, "extra_body": {"prompt_logprobs": 1}}
    (choice,) = client.completions.create(model=FORERUN, prompt=text, **asked).choices
    first, *others = choice.model_extra["prompt_logprobs"]
    assert first is None
    for character, told in zip(text[1:], others, strict=True):
        assert told[str(ord(character))]["decoded_token"] == character
        assert min(each["rank"] for each in told.values()) == 1
    logprobs = [
        told[str(ord(each))]["logprob"] for each, told in zip(text[1:], others, strict=True)
    ]
    assert logprobs[len(PROMPT) - 1 :] == drawn.logprobs.token_logprobs
    messages = [{"role": "user", "content": "Hi"}]
    chat = client.chat.completions.create(model=FORERUN, messages=messages, **asked)
    assert len(chat.model_extra["prompt_logprobs"]) == chat.usage.prompt_tokens


def test_a_refusal_by_the_engine_has_the_name_that_the_client_wrote(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"prompt\[1\] must be an id") as caught:
        client.completions.create(model=FORERUN, prompt=[5, 10**6])
    assert caught.value.param == "prompt[1]"


def test_the_engine_ends_an_answer_at_the_deadline_of_the_shim(
    triton: Served, tiny_artifact: Path
) -> None:
    def timeouts() -> int:
        return triton.snapshot().finished.get("timeout", 0)

    before = timeouts()
    model = ServedModel(FORERUN, tiny_artifact)
    with shim_before(triton, model, deadline_s=0.3) as shim, client_of(shim) as client:
        with pytest.raises(openai.InternalServerError) as caught:
            client.completions.create(
                model=FORERUN, prompt="Hi", max_tokens=4000, extra_body={"ignore_eos": True}
            )
        assert (caught.value.status_code, caught.value.code) == (504, "timeout")
    triton.wait_idle()
    assert timeouts() == before + 1
