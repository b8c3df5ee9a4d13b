"""The face `vllm`: the contract of Triton's vLLM backend, tensor by tensor."""

import json
from typing import Any

import numpy as np
import pytest

from builder.errors import RequestError
from triton_backend.faces.vllm import VLLM
from triton_backend.messages import ControlText, News, Terms
from triton_backend.protocol import Array, Ask, Inputs, strings
from triton_backend.request import FinishReason, SamplingParams, TokenLogprobs

WANTED = frozenset(tensor.name for tensor in VLLM.outputs)
FIRST = News(1, (5,), "ab", (b"ab",), 3, 1)
LAST = News(1, (6, 7), "c", (b"c", b""), 3, 3, FinishReason.STOP, 7)
RETURNS = [tensor.name for tensor in VLLM.outputs if tensor.name != "text_output"]


def boolean(value: bool) -> Array:
    return np.array([value])


def sampling(value: object) -> Array:
    return strings(json.dumps(value).encode())


def read(parameters: dict[str, object] | None = None, **arrays: Array) -> Ask:
    given = {"text_input": strings(b"hi"), **arrays}
    return VLLM.read(Inputs(VLLM.inputs, given), parameters or {}, WANTED)


def written(ask: Ask, news: News) -> dict[str, list[Any]]:
    return {name: array.tolist() for name, array in ask.write([news])[0].items()}


def test_special_tokens_of_the_prompt_count_and_one_answer_is_the_default() -> None:
    ask = read()
    assert (ask.prompt, ask.is_streaming) == (ControlText("hi"), False)
    assert ask.params == SamplingParams()


def test_sampling_fields_come_as_json_or_as_parameters() -> None:
    expected = SamplingParams(temperature=0.5, max_tokens=4, stop=("x",))
    fields = {"temperature": 0.5, "max_tokens": 4, "stop": "x", "top_k": None}
    assert read(sampling_parameters=sampling(fields)).params == expected
    assert read({**fields, "id": "r1"}).params == expected


@pytest.mark.parametrize(
    ("excludes", "streams", "text"),
    [
        (None, False, b"hiab"),
        (False, False, b"hiab"),
        (True, False, b"ab"),
        (None, True, b"ab"),
        (True, True, b"ab"),
    ],
)
def test_the_prompt_goes_before_an_answer_unless_it_is_left_out(
    excludes: bool | None, streams: bool, text: bytes
) -> None:
    chosen = {} if excludes is None else {"exclude_input_in_output": boolean(excludes)}
    ask = read(stream=boolean(streams), **chosen)
    assert written(ask, FIRST) == {"text_output": [text]}
    assert written(ask, LAST) == {"text_output": [b"c"]}


def test_further_outputs_come_if_they_are_asked_for() -> None:
    for name in RETURNS:
        ask = read(stream=boolean(True), **{f"return_{name}": boolean(True)})
        assert set(written(ask, FIRST)) == {"text_output", name}
        ask = read(stream=boolean(True), **{f"return_{name}": boolean(False)})
        assert set(written(ask, FIRST)) == {"text_output"}


def test_counts_are_of_the_prompt_and_of_the_response() -> None:
    ask = read(
        stream=boolean(True),
        return_num_input_tokens=boolean(True),
        return_num_output_tokens=boolean(True),
        return_finish_reason=boolean(True),
    )
    (first,), (last,) = ask.write([FIRST]), ask.write([LAST])
    assert first["num_input_tokens"].dtype == first["num_output_tokens"].dtype == np.uint32
    assert [tensors["num_input_tokens"].tolist() for tensors in (first, last)] == [[3], [3]]
    assert [tensors["num_output_tokens"].tolist() for tensors in (first, last)] == [[1], [2]]
    reasons = [tensors["finish_reason"].tolist() for tensors in (first, last)]
    assert reasons == [[b"None"], [b"stop"]]


def told(*logprobs: float) -> tuple[TokenLogprobs, ...]:
    return tuple(TokenLogprobs(logprob, 3, (8, 9), (-0.25, -2.0)) for logprob in logprobs)


def test_the_cumulative_logprob_grows_over_the_stream() -> None:
    ask = read(stream=boolean(True), return_cumulative_logprob=boolean(True))
    assert ask.params.logprobs == 0
    heard = []
    for logprobs in ((-0.5,), (-1.0, -2.0)):
        news = News(1, (5,), "a", (b"a",), 3, 1, logprobs=told(*logprobs))
        heard += written(ask, news)["cumulative_logprob"]
    assert heard == [-0.5, -3.5]


def test_logprobs_are_json_with_the_token_and_the_likeliest() -> None:
    ask = read({"logprobs": 2}, return_logprobs=boolean(True))
    news = News(
        *(1, (5, 9), "ab", (b"a", b"\xff"), 3, 2),
        logprobs=(*told(-float("inf")), TokenLogprobs(-2.0, 2, (8, 9), (-0.25, -2.0))),
        top_bytes=((b"x", b"\xff"), (b"x", b"\xff")),
    )
    (text,) = written(ask, news)["logprobs"]
    best = {"logprob": -0.25, "rank": 1, "decoded_token": "x"}
    second = {"logprob": -2.0, "rank": 2, "decoded_token": "\ufffd"}
    assert json.loads(text) == [
        {"5": {"logprob": -9999.0, "rank": 3, "decoded_token": "a"}, "8": best, "9": second},
        {"9": second, "8": best},
    ]
    assert [list(row) for row in json.loads(text)] == [["5", "8", "9"], ["9", "8"]]


def test_logprobs_without_the_field_are_null() -> None:
    ask = read(return_logprobs=boolean(True), return_cumulative_logprob=boolean(True))
    news = News(1, (5,), "a", (b"a",), 3, 1, logprobs=told(-1.0), top_bytes=((),))
    assert written(ask, news)["logprobs"] == [b"null"]


REFUSED: list[tuple[dict[str, object], dict[str, Array], str]] = [
    ({}, {"image": strings(b"x")}, "image is not supported: this model takes no images."),
    ({}, {"embedding_request": strings(b"{}")}, "embedding_request is not supported: this"),
    (
        {},
        {"stream": boolean(True), "exclude_input_in_output": boolean(False)},
        "exclude_input_in_output must not be false when stream is true.",
    ),
    ({}, {"sampling_parameters": strings(b"{secret")}, "must be a JSON object; it is no JSON."),
    ({}, {"sampling_parameters": strings(b'{"seed": NaN}')}, "it is no JSON."),
    ({}, {"sampling_parameters": strings(b'{"stop": "\\ud800"}')}, "it is no JSON."),
    ({}, {"sampling_parameters": strings(b"[" * 100_000)}, "it is no JSON."),
    ({}, {"sampling_parameters": strings(b"[1]")}, "must be a JSON object; it is other JSON."),
    ({}, {"sampling_parameters": strings(b"\xff")}, "sampling_parameters is not UTF-8 text"),
    ({"top_k": 3}, {"sampling_parameters": sampling({})}, "and as parameters; choose one"),
    ({"best_of": 2}, {}, "sampling field best_of is not supported by this model; leave it"),
    ({"n": 0}, {}, "num_choices must be an integer from 1"),
    ({"lora_name": "x"}, {}, "sampling field lora_name is not supported"),
    ({"max_token": 2}, {}, "unknown sampling field 'max_token'. Did you mean max_tokens"),
]


@pytest.mark.parametrize(("parameters", "arrays", "message"), REFUSED)
def test_what_is_wrong_is_refused_by_name(
    parameters: dict[str, object], arrays: dict[str, Array], message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        read(parameters, **arrays)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


TOPS = ((b"x", b"y"),)
CHOICE_1 = News(1, (5,), "x", (b"x",), 3, 1, logprobs=told(-0.5), top_bytes=TOPS, choice=1)


def test_a_response_has_an_element_for_each_choice() -> None:
    returns = {f"return_{name}": boolean(True) for name in RETURNS}
    ask = read({"n": 3, "logprobs": 0}, stream=boolean(True), **returns)
    assert ask.params.num_choices == 3
    empty = written(ask, CHOICE_1)
    assert empty["text_output"] == [b"", b"x", b""]
    assert empty["finish_reason"] == [b"None"] * 3
    assert empty["cumulative_logprob"] == [0.0, -0.5, 0.0]
    assert [len(json.loads(text)) for text in empty["logprobs"]] == [0, 1, 0]
    assert (empty["num_input_tokens"], empty["num_output_tokens"]) == ([3], [1])
    both = [News(1, (6,), "c", (b"c",), 3, 1, FinishReason.LENGTH), CHOICE_1]
    (response,) = ask.write(both)
    assert response["text_output"].tolist() == [b"c", b"x", b""]
    assert response["finish_reason"].tolist() == [b"length", b"None", b"None"]
    assert response["cumulative_logprob"].tolist() == [0.0, -1.0, 0.0]
    assert response["num_output_tokens"].tolist() == [2]
    later = written(ask, CHOICE_1)
    assert later["finish_reason"] == [b"length", b"None", b"None"]


def test_the_prompt_goes_before_the_answer_of_each_choice() -> None:
    ask = read({"n": 2})
    (response,) = ask.write([LAST, CHOICE_1])
    assert response["text_output"].tolist() == [b"hic", b"hix"]


def test_what_is_no_sampling_parameter_travels_beside_them() -> None:
    assert read({"bad_words": ["no"], "priority": "-2"}).terms == Terms(
        priority=-2, bad_words=("no",)
    )
    assert read().terms == Terms()


def test_a_missing_prompt_is_refused_though_triton_lets_it_pass() -> None:
    with pytest.raises(RequestError, match="text_input is missing; give the prompt in it"):
        VLLM.read(Inputs(VLLM.inputs, {"stream": boolean(True)}), {}, WANTED)


def test_only_wanted_outputs_are_written() -> None:
    arrays = {"text_input": strings(b"hi"), "return_finish_reason": boolean(True)}
    ask = VLLM.read(Inputs(VLLM.inputs, arrays), {}, frozenset({"finish_reason"}))
    assert written(ask, LAST) == {"finish_reason": [b"stop"]}
