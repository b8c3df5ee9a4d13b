"""Completions that begin with their prompt, and what is told of the tokens of prompts."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.triton_backend.openai.conftest import MODEL
from tests.triton_backend.openai.events import chunks_of
from tests.triton_backend.openai.fake_face import PROMPT_LOGPROB, FakeFace
from tests.triton_backend.openai.scripts import Asked, Piece, saying, saying_each

COMPLETIONS, CHATS = "/v1/completions", "/v1/chat/completions"
COLUMNS = ("tokens", "token_logprobs", "top_logprobs", "text_offset")


def body(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, "echo": True, **fields}


def choices_of(http: httpx.Client, asked: dict[str, Any]) -> list[dict[str, Any]]:
    response = http.post(COMPLETIONS, json=asked)
    assert response.status_code == 200, response.text
    choices: list[dict[str, Any]] = response.json()["choices"]
    return choices


def streamed(http: httpx.Client, asked: dict[str, Any]) -> list[dict[str, Any]]:
    """Put the choices of a stream together, as they would be whole."""
    whole: dict[int, dict[str, Any]] = {}
    for chunk in chunks_of(http.post(COMPLETIONS, json=asked | {"stream": True})):
        (piece,) = chunk["choices"]
        so_far = whole.setdefault(piece["index"], {**piece, "text": "", "logprobs": None})
        so_far["text"] += piece["text"]
        so_far["finish_reason"] = piece["finish_reason"]
        if piece["logprobs"] is not None:
            told = so_far["logprobs"] or {}
            so_far["logprobs"] = {
                name: piece["logprobs"][name]
                if told.get(name) is None
                else told[name] + piece["logprobs"][name]
                for name in COLUMNS
            }
    return [whole[index] for index in sorted(whole)]


def test_an_answer_begins_with_its_prompt(http: httpx.Client, face: FakeFace) -> None:
    (choice,) = choices_of(http, body("Hé "))
    assert choice == {
        "index": 0,
        "text": "Hé Hello, world",
        "logprobs": None,
        "finish_reason": "stop",
    }
    assert not {"logprobs", "prompt_logprobs"} & face.asked[0].tensors.keys()


@pytest.mark.parametrize("prompt", ["Hé", [*"Hé".encode()], ["a", "日b"], [[65], [66, 67]]])
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_a_stream_tells_what_a_whole_answer_does(
    prompt: Any, n: int, logprobs: int | None, http: httpx.Client, face: FakeFace
) -> None:
    face.script = saying_each(*["xé", "y"][:n])
    asked = body(prompt, n=n, logprobs=logprobs)
    assert streamed(http, asked) == choices_of(http, asked)


@pytest.mark.parametrize("prompt", ["Hé", [*"Hé".encode()]])
def test_the_tokens_of_the_prompt_come_first(
    prompt: Any, http: httpx.Client, face: FakeFace
) -> None:
    face.script = saying("A", finish_reason="length")
    (choice,) = choices_of(http, body(prompt, logprobs=1, max_tokens=1))
    assert choice["text"] == "HéA"
    assert choice["logprobs"] == {
        "tokens": ["H", "bytes:\\xc3", "bytes:\\xa9", "A"],
        "token_logprobs": [None, PROMPT_LOGPROB, PROMPT_LOGPROB, -0.5],
        "top_logprobs": [
            None,
            {"bytes:\\xc3": PROMPT_LOGPROB},
            {"bytes:\\xa9": PROMPT_LOGPROB},
            {"A": -0.5},
        ],
        "text_offset": [0, 1, 1, 2],
    }
    assert face.asked[0].tensors["prompt_logprobs"] == [1]
    assert "prompt_logprobs" not in choice


def test_without_top_logprobs_there_are_none_of_the_prompt(http: httpx.Client) -> None:
    (choice,) = choices_of(http, body("Hi", logprobs=0))
    assert choice["logprobs"]["top_logprobs"] is None
    assert choice["logprobs"]["token_logprobs"][:3] == [None, PROMPT_LOGPROB, -0.5]


def test_control_tokens_of_a_prompt_have_a_name_and_no_text(http: httpx.Client) -> None:
    (choice,) = choices_of(http, body([258, 65, 258], logprobs=0, max_tokens=0))
    assert choice["text"] == "A"
    assert choice["logprobs"]["tokens"] == ["<|im_end|>", "A", "<|im_end|>"]
    assert choice["logprobs"]["text_offset"] == [0, 0, 1]


def test_every_prompt_begins_its_own_choices(http: httpx.Client, face: FakeFace) -> None:
    face.script = saying_each("a", "b")
    choices = choices_of(http, body(["x", "yz"], n=2, logprobs=0))
    assert [choice["text"] for choice in choices] == ["xa", "xb", "yza", "yzb"]
    assert [choice["logprobs"]["tokens"][0] for choice in choices] == ["x", "x", "y", "y"]


def test_choices_that_begin_before_the_first_have_their_prompt_too(
    http: httpx.Client, face: FakeFace
) -> None:
    def script(_: Asked) -> Iterator[Piece]:
        yield Piece("b", choice=1)
        yield Piece("a", choice=0)
        for choice in (1, 0):
            yield Piece(finish_reason="stop", choice=choice)

    face.script = script
    choices = streamed(http, body("Hi", n=2, logprobs=0))
    assert [choice["text"] for choice in choices] == ["Hia", "Hib"]
    assert [choice["logprobs"]["tokens"] for choice in choices] == [[*"Hia"], [*"Hib"]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("logprobs", [None, 1])
def test_no_tokens_may_be_asked_for_where_the_prompt_is_told(
    stream: bool, logprobs: int | None, http: httpx.Client, face: FakeFace
) -> None:
    face.script = saying("unwanted")
    asked = body("Hi", max_tokens=0, logprobs=logprobs)
    (choice,) = (streamed if stream else choices_of)(http, asked)
    assert (choice["text"], choice["finish_reason"]) == ("Hi", "length")
    assert face.asked[0].tensors["max_tokens"] == [1]
    if logprobs is not None:
        assert choice["logprobs"]["token_logprobs"] == [None, PROMPT_LOGPROB]
        assert choice["logprobs"]["text_offset"] == [0, 1]


def test_an_answer_of_no_tokens_is_not_counted(http: httpx.Client) -> None:
    usage = http.post(COMPLETIONS, json=body("Hi", max_tokens=0)).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (2, 0, 2)


def test_prompt_logprobs_are_by_token_id_as_with_vllm(http: httpx.Client, face: FakeFace) -> None:
    face.script = saying_each("a", "b")
    asked = body(["Hi", "x"], n=2, echo=False, prompt_logprobs=2)
    choices = choices_of(http, asked)
    told = [
        None,
        {
            "105": {"logprob": PROMPT_LOGPROB, "rank": 1, "decoded_token": "i"},
            "106": {"logprob": PROMPT_LOGPROB - 1, "rank": 2, "decoded_token": "j"},
        },
    ]
    assert [choice["prompt_logprobs"] for choice in choices] == [told, told, [None], [None]]
    assert [choice["text"] for choice in choices] == ["a", "b", "a", "b"]
    assert choices[0]["logprobs"] is None


def test_both_kinds_of_logprobs_of_a_prompt_have_as_many_as_asked_for(
    http: httpx.Client, face: FakeFace
) -> None:
    (choice,) = choices_of(http, body("Hi", logprobs=1, prompt_logprobs=3))
    assert face.asked[0].tensors["prompt_logprobs"] == [3]
    assert len(choice["prompt_logprobs"][1]) == 3
    assert len(choice["logprobs"]["top_logprobs"][1]) == 1
    (choice,) = choices_of(http, body("Hi", logprobs=3, prompt_logprobs=0))
    assert len(choice["prompt_logprobs"][1]) == 1
    assert len(choice["logprobs"]["top_logprobs"][1]) == 3


def test_a_chat_tells_them_beside_its_choices(http: httpx.Client, chat: dict[str, Any]) -> None:
    answer = http.post(CHATS, json=chat | {"prompt_logprobs": 0}).json()
    first, second, *_, last = answer["prompt_logprobs"]
    assert first is None
    assert second.keys() < {str(each) for each in range(256)}
    assert next(iter(last.values()))["rank"] == 1
    assert len(answer["prompt_logprobs"]) == answer["usage"]["prompt_tokens"]
    assert "prompt_logprobs" not in answer["choices"][0]
    assert "prompt_logprobs" not in http.post(CHATS, json=chat).json()
