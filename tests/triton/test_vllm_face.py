"""The vLLM contract in the real server over gRPC, as clients of Triton's vLLM backend use it."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.utils import InferenceServerException

from tests.triton.answers import ask, column
from tests.triton.clients import Stream, tensors, text_of
from tests.triton.engine_alone import EngineAlone, token_ids
from tests.triton.serving import VLLM, Served
from triton_backend.faces import FACES
from triton_backend.messages import ControlText

GREEDY = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}
START = "<|im_start|>"


@pytest.fixture
def vllm(triton: Served) -> Iterator[Stream]:
    with triton.vllm() as stream:
        yield stream


def test_a_drawn_answer_is_that_of_its_seed(vllm: Stream, alone: EngineAlone) -> None:
    params = {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "seed": -3, "max_tokens": 20}
    results = ask(vllm, text_input="Hello", stream=True, sampling_parameters=json.dumps(params))
    assert text_of(results, "text_output") == alone.text("Hello", **params)


@pytest.mark.parametrize(("excludes", "before"), [(None, "Hello"), (False, "Hello"), (True, "")])
def test_the_prompt_goes_before_a_whole_answer_of_vllm(
    vllm: Stream, alone: EngineAlone, excludes: bool | None, before: str
) -> None:
    chosen = {} if excludes is None else {"exclude_input_in_output": excludes}
    (result,) = ask(vllm, text_input="Hello", sampling_parameters=json.dumps(GREEDY), **chosen)
    expected = alone.text("Hello", **GREEDY)
    assert text_of([result], "text_output") == before + expected
    assert [output.name for output in result.get_response().outputs] == ["text_output"]


def test_further_outputs_of_vllm_come_if_they_are_asked_for(
    vllm: Stream, alone: EngineAlone
) -> None:
    returns = {f"return_{tensor.name}": True for tensor in FACES["vllm"].outputs[1:]}
    results = ask(
        vllm,
        text_input="Hello",
        stream=True,
        sampling_parameters=json.dumps({**GREEDY, "logprobs": 2}),
        **returns,
    )
    deltas = alone.deltas("Hello", logprobs=2, **GREEDY)
    assert text_of(results, "text_output") == "".join(delta.text for delta in deltas)
    assert sum(column(results, "num_output_tokens")) == 12
    assert set(column(results, "num_input_tokens")) == {5}
    assert results[0].as_numpy("num_input_tokens").dtype == np.uint32
    assert column(results, "finish_reason") == [b"None"] * (len(results) - 1) + [b"length"]
    total = sum(told.logprob for delta in deltas for told in delta.logprobs)
    assert column(results, "cumulative_logprob")[-1] == pytest.approx(total, abs=1e-4)
    rows = [row for text in column(results, "logprobs") for row in json.loads(text)]
    assert [int(next(iter(row))) for row in rows] == token_ids(deltas)
    assert all(len(row) in {2, 3} for row in rows)


def test_special_tokens_count_in_a_prompt_of_vllm(vllm: Stream, alone: EngineAlone) -> None:
    (result,) = ask(
        vllm,
        text_input=f"{START}hi",
        sampling_parameters=json.dumps(GREEDY),
        exclude_input_in_output=True,
        return_num_input_tokens=True,
    )
    assert result.as_numpy("num_input_tokens").tolist() == [3]
    assert text_of([result], "text_output") == alone.text(ControlText(f"{START}hi"), **GREEDY)


@pytest.mark.parametrize("streams", [False, True])
def test_a_response_has_the_text_of_each_choice(vllm: Stream, streams: bool) -> None:
    fields = {"n": 2, "seed": 3, "max_tokens": 6, "ignore_eos": True}
    results = ask(
        vllm,
        text_input="Hello",
        sampling_parameters=json.dumps(fields),
        stream=streams,
        exclude_input_in_output=True,
        return_finish_reason=True,
        return_num_output_tokens=True,
    )
    assert all(len(result.as_numpy("text_output")) == 2 for result in results)
    assert results[-1].as_numpy("finish_reason").tolist() == [b"length", b"length"]
    assert sum(result.as_numpy("num_output_tokens")[0] for result in results) == 12
    assert streams or len(results) == 1


def test_bad_words_and_constraints_count_on_the_face_of_vllm(vllm: Stream) -> None:
    fields = {"structured_outputs": {"choice": ["yes", "no"]}, "bad_words": ["y"]}
    for seed in range(4):
        (result,) = ask(
            vllm,
            text_input="Hello",
            sampling_parameters=json.dumps({**fields, "seed": seed}),
            exclude_input_in_output=True,
        )
        assert text_of([result], "text_output") == "no"


def test_sampling_fields_may_come_as_typed_parameters(triton: Served, alone: EngineAlone) -> None:
    with triton.vllm() as stream:
        stream._client.async_stream_infer(
            VLLM,
            tensors("vllm", text_input="Hello", exclude_input_in_output=True),
            parameters={"temperature": 0.0, "max_tokens": 12, "ignore_eos": True, "stop": "never"},
            enable_empty_final_response=True,
        )
        results = stream.answer()
    assert text_of(results, "text_output") == alone.text("Hello", **GREEDY)


VLLM_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"stream": True}, "text_input is missing; give the prompt in it."),
    ({"text_input": "a", "image": ["x"]}, "image is not supported: this model takes no images."),
    ({"text_input": "a", "embedding_request": "{}"}, "embedding_request is not supported"),
    (
        {"text_input": "a", "stream": True, "exclude_input_in_output": False},
        "exclude_input_in_output must not be false when stream is true.",
    ),
    ({"text_input": "a", "sampling_parameters": "{"}, "sampling_parameters must be a JSON object"),
    (
        {"text_input": "a", "sampling_parameters": '{"best_of": 2}'},
        "sampling field best_of is not supported",
    ),
    (
        {"text_input": "a", "sampling_parameters": '{"lora_name": "x"}'},
        "sampling field lora_name is not supported",
    ),
    (
        {"text_input": "a", "sampling_parameters": '{"temprature": 1}'},
        "unknown sampling field 'temprature'. Did you mean temperature?",
    ),
    ({"text_input": "a", "sampling_parameters": '{"top_p": 3}'}, "top_p must be a number from 0"),
]


@pytest.mark.parametrize(("fields", "message"), VLLM_REFUSALS)
def test_what_vllm_does_and_we_do_not_is_refused_by_name(
    vllm: Stream, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(vllm, **fields)
    assert message in str(caught.value.message())
