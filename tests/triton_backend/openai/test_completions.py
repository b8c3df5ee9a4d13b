"""POST /v1/completions: a choice for each prompt."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.triton_backend.openai.conftest import MODEL, NOW
from tests.triton_backend.openai.events import chunks_of
from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.scripts import Asked, FailedError, Piece, saying_each

COMPLETIONS = "/v1/completions"
SAID = "Hello, world"


def echoing(asked: Asked) -> Iterator[Piece]:
    """Say the prompt, a character a delta."""
    for character in asked.tensors["text"][0].decode():
        yield Piece(character)
    yield Piece(finish_reason="length")


def body(prompt: Any, **fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "prompt": prompt, **fields}


def test_a_whole_answer_is_a_text_completion(http: httpx.Client) -> None:
    answer = http.post(COMPLETIONS, json=body("Hi")).json()
    assert answer.pop("id").startswith("cmpl-")
    assert answer.pop("system_fingerprint").startswith("fp_")
    assert answer == {
        "object": "text_completion",
        "created": int(NOW),
        "model": MODEL,
        "choices": [{"index": 0, "text": SAID, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": 2,
            "completion_tokens": 12,
            "total_tokens": 14,
            "prompt_tokens_details": {"cached_tokens": 1},
        },
    }


def test_a_stream_is_the_texts_the_reason_and_done(http: httpx.Client) -> None:
    chunks = chunks_of(http.post(COMPLETIONS, json=body("Hi", stream=True)))
    assert [chunk["choices"] for chunk in chunks] == [
        [{"index": 0, "text": text, "logprobs": None, "finish_reason": reason}]
        for text, reason in [("Hello", None), (", wor", None), ("ld", None), ("", "stop")]
    ]
    assert {chunk["object"] for chunk in chunks} == {"text_completion"}


@pytest.mark.parametrize(
    ("prompt", "tensors"),
    [
        ("Hi", [{"text": [b"Hi"]}]),
        ("<|im_end|>", [{"text": [b"<|im_end|>"]}]),
        ([5, 258], [{"token_ids": [5, 258]}]),
        (["a", ""], [{"text": [b"a"]}, {"text": [b""]}]),
        ([[1], [2, 3]], [{"token_ids": [1]}, {"token_ids": [2, 3]}]),
    ],
)
def test_a_prompt_is_sent_as_it_is(
    prompt: Any, tensors: list[dict[str, Any]], http: httpx.Client, face: FakeFace
) -> None:
    http.post(COMPLETIONS, json=body(prompt))
    prompts = {"text", "token_ids", "segments", "segment_kinds"}
    assert tensors == [
        {name: values for name, values in asked.tensors.items() if name in prompts}
        for asked in face.asked
    ]


def test_every_prompt_has_its_choice_in_order(http: httpx.Client, face: FakeFace) -> None:
    face.script = echoing
    answer = http.post(COMPLETIONS, json=body(["long", "s", "two"])).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert [choice["text"] for choice in answer["choices"]] == ["long", "s", "two"]
    assert answer["usage"] == {
        "prompt_tokens": 8,
        "completion_tokens": 8,
        "total_tokens": 16,
        "prompt_tokens_details": {"cached_tokens": 3},
    }


def test_the_choices_of_a_stream_grow_side_by_side(http: httpx.Client, face: FakeFace) -> None:
    face.script = echoing
    options = {"stream": True, "stream_options": {"include_usage": True}}
    *chunks, last = chunks_of(http.post(COMPLETIONS, json=body(["long", "s"], **options)))
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice["index"] for choice in choices[:3]] == [1, 0, 1]
    for index, text in enumerate(["long", "s"]):
        own = [choice for choice in choices if choice["index"] == index]
        assert "".join(choice["text"] for choice in own) == text
        assert [choice["finish_reason"] for choice in own if choice["finish_reason"]] == ["length"]
    assert last["usage"]["completion_tokens"] == 5


def test_all_choices_end_when_one_fails(http: httpx.Client, face: FakeFace) -> None:
    def script(asked: Asked) -> Iterator[Piece]:
        if asked.tensors["text"] == [b"bad"]:
            raise FailedError("invalid: top_k must be lower.")
        yield Piece("x", finish_reason="stop")

    face.script = script
    response = http.post(COMPLETIONS, json=body(["good", "bad"]))
    assert response.status_code == 400
    assert response.json()["error"]["param"] == "top_k"


def test_logprobs_are_columns(http: httpx.Client, face: FakeFace) -> None:
    face.script = lambda _: iter([Piece("aé", finish_reason="stop", logprob=float("-inf"))])
    answer = http.post(COMPLETIONS, json=body("Hi", logprobs=2)).json()
    assert answer["choices"][0]["logprobs"] == {
        "tokens": ["a", "bytes:\\xc3", "bytes:\\xa9"],
        "token_logprobs": [-9999.0] * 3,
        "top_logprobs": [
            {"a": -9999.0, "b": -9999.0},
            {"bytes:\\xc3": -9999.0, "bytes:\\xc4": -9999.0},
            {"bytes:\\xa9": -9999.0, "bytes:\\xaa": -9999.0},
        ],
        "text_offset": [0, 1, 1],
    }


def test_streamed_logprobs_add_up_to_the_columns_of_the_whole(
    http: httpx.Client, face: FakeFace
) -> None:
    wanted = body(["aé", "日x"], logprobs=0)

    def script(asked: Asked) -> Iterator[Piece]:
        for byte in asked.tensors["text"][0]:
            yield Piece(token_ids=(byte,))
        yield Piece(finish_reason="stop")

    face.script = script
    whole = http.post(COMPLETIONS, json=wanted).json()["choices"]
    chunks = chunks_of(http.post(COMPLETIONS, json=wanted | {"stream": True}))
    for choice in whole:
        assert choice["logprobs"].pop("top_logprobs") is None
        for column, values in choice["logprobs"].items():
            pieces = [
                chunk["choices"][0]["logprobs"][column]
                for chunk in chunks
                if chunk["choices"][0]["index"] == choice["index"]
                and chunk["choices"][0]["logprobs"]
            ]
            assert [value for piece in pieces for value in piece] == values
    assert whole[1]["logprobs"]["text_offset"] == [0, 0, 0, 1]


def test_choices_of_several_prompts_come_prompt_by_prompt(
    http: httpx.Client, face: FakeFace
) -> None:
    face.script = saying_each("a", "b")
    answer = http.post(COMPLETIONS, json=body(["x", "yz"], n=2)).json()
    told = [(choice["index"], choice["text"]) for choice in answer["choices"]]
    assert told == [(0, "a"), (1, "b"), (2, "a"), (3, "b")]
    assert answer["usage"]["prompt_tokens"] == 3
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
