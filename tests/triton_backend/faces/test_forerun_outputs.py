"""The face `forerun`: every output says what the news says, to those who ask for it."""

import json
from typing import Any

import numpy as np
import pytest

from triton_backend.faces import FACES, find_face
from triton_backend.faces.forerun import ALWAYS, ASKED, BYTES, FORERUN, OF_PROMPT
from triton_backend.messages import News
from triton_backend.protocol import Array, Ask, Inputs, integers, strings
from triton_backend.request import FinishReason, TokenLogprobs

ALL = frozenset(tensor.name for tensor in FORERUN.outputs)
WANTED = ALL - {"num_cached_tokens"}
"""Named one by one, as gRPC clients can; Triton's generate calls want all."""
RUNNING = News(1, (5, 6), "é", (b"\xc3", b"\xa9"), 3, 4)
TOLD = (
    TokenLogprobs(-0.5, 1, (5, 9), (-0.5, -1.25)),
    TokenLogprobs(-float("inf"), 7, (8, 6), (-0.25, -2.0)),
)


def read(
    parameters: dict[str, object] | None = None, wanted: frozenset[str] = WANTED, **arrays: Array
) -> Ask:
    given = arrays or {"text": strings(b"hi")}
    return FORERUN.read(Inputs(FORERUN.inputs, given), parameters or {}, wanted)


def written(ask: Ask, news: News) -> dict[str, list[Any]]:
    return {name: array.tolist() for name, array in ask.write([news])[0].items()}


def test_a_running_answer_has_its_tokens_and_its_counts() -> None:
    assert written(read(), RUNNING) == {
        "token_ids": [5, 6],
        "text": ["é".encode()],
        "token_bytes": [b"\xc3", b"\xa9"],
        "choice": [0],
        "finish_reason": [b""],
        "stop_reason": [b"null"],
        "num_prompt_tokens": [3],
        "num_generated_tokens": [4],
    }


def test_bytes_come_only_to_clients_that_name_what_they_want() -> None:
    news = News(
        *(1, (5,), "", (b"\xc3",), 3, 4), logprobs=TOLD[:1], top_bytes=((b"\xc3", b"\xff"),)
    )
    logprobs = {"logprobs": integers(2), "prompt_logprobs": integers(0)}
    everything = read(wanted=ALL, text=strings(b"hi"), **logprobs)
    assert set(written(everything, news)) == ALL - BYTES
    json.dumps(
        [
            [str(v, "utf-8") if isinstance(v, bytes) else v for v in values]
            for values in written(everything, news).values()
        ]
    )
    chosen = read(
        wanted=frozenset({"token_bytes", "top_bytes"}), text=strings(b"hi"), logprobs=integers(2)
    )
    assert written(chosen, news) == {"token_bytes": [b"\xc3"], "top_bytes": [b"\xc3", b"\xff"]}


@pytest.mark.parametrize("stop_reason", [None, 17, 'a "b" é'])
def test_the_last_response_says_why_it_is_the_last(stop_reason: int | str | None) -> None:
    news = News(1, (), "", (), 3, 4, FinishReason.STOP, stop_reason)
    last = written(read(), news)
    assert (last["token_ids"], last["text"], last["token_bytes"]) == ([], [b""], [])
    assert last["finish_reason"] == [b"stop"]
    assert json.loads(last["stop_reason"][0]) == stop_reason


def test_logprobs_come_flattened_to_those_who_ask() -> None:
    news = News(
        *(1, (5, 6), "ab", (b"a", b"b"), 3, 4),
        logprobs=TOLD,
        top_bytes=((b"a", b"\xff"), (b"", b"b")),
    )
    asked = written(read(text=strings(b"hi"), logprobs=integers(2)), news)
    assert asked["logprobs"] == [-0.5, -np.inf]
    assert asked["ranks"] == [1, 7]
    assert asked["top_ids"] == [5, 9, 8, 6]
    assert asked["top_logprobs"] == [-0.5, -1.25, -0.25, -2.0]
    assert asked["top_bytes"] == [b"a", b"\xff", b"", b"b"]
    assert not written(read(), news).keys() & {tensor.name for tensor, _ in ASKED + OF_PROMPT}


def test_logprobs_of_a_prompt_come_flattened_to_those_who_ask() -> None:
    asked = read(text=strings(b"hi"), prompt_logprobs=integers(2))
    news = News(
        *(1, (5,), "a", (b"a",), 3, 1),
        prompt_logprobs=TOLD,
        prompt_token_ids=(4, 5, 6),
        prompt_token_bytes=(b"\xc3", b"b", b"c"),
        prompt_top_bytes=((b"a", b"\xff"), (b"", b"b")),
    )
    first = written(asked, news)
    assert first["prompt_token_ids"] == [4, 5, 6]
    assert first["prompt_token_bytes"] == [b"\xc3", b"b", b"c"]
    assert first["prompt_top_bytes"] == [b"a", b"\xff", b"", b"b"]
    assert first["prompt_logprobs"] == [-0.5, -np.inf]
    assert first["prompt_ranks"] == [1, 7]
    assert first["prompt_top_ids"] == [5, 9, 8, 6]
    assert first["prompt_top_logprobs"] == [-0.5, -1.25, -0.25, -2.0]
    assert not first.keys() & {tensor.name for tensor, _ in ASKED}
    later = written(asked, RUNNING)
    assert all(later[tensor.name] == [] for tensor, _ in OF_PROMPT)


def test_each_choice_has_a_response_of_its_own() -> None:
    news = [News(1, (5,), "a", (b"a",), 3, 1, choice=choice) for choice in (2, 0)]
    responses = read(num_choices=integers(3), text=strings(b"hi")).write(news)
    assert [each["choice"].tolist() for each in responses] == [[2], [0]]


def test_only_wanted_outputs_are_written() -> None:
    ask = read(wanted=frozenset({"text", "logprobs"}))
    assert written(ask, RUNNING) == {"text": ["é".encode()]}


@pytest.mark.parametrize("tensor", FORERUN.outputs, ids=lambda tensor: tensor.name)
def test_every_output_has_the_type_and_length_of_its_table(tensor: Any) -> None:
    news = News(1, (5,), "a", (b"a",), 3, 4, logprobs=TOLD[:1], top_bytes=((b"a", b"b"),))
    wanted = frozenset({tensor.name})
    logprobs = {"logprobs": integers(2), "prompt_logprobs": integers(0)}
    ask = read(wanted=wanted, text=strings(b"hi"), **logprobs)
    array = ask.write([news])[0][tensor.name]
    kinds = {"INT32": np.int32, "FP32": np.float32, "STRING": np.object_}
    assert array.dtype == kinds[tensor.data_type]
    assert array.ndim == 1
    assert tensor.length in {-1, len(array)}


def test_the_table_of_faces_finds_it() -> None:
    assert find_face("forerun") is FORERUN
    assert set(FACES) == {"forerun", "vllm"}
    assert FORERUN.outputs == tuple(tensor for tensor, _ in ALWAYS + ASKED + OF_PROMPT)
