"""Our own face in the real server over gRPC: clients hear what the engine says, and nothing is ignored."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tritonclient.grpc import InferenceServerClient, InferRequestedOutput, InferResult
from tritonclient.utils import InferenceServerException

from tests.triton.answers import ask, column
from tests.triton.clients import Stream, is_final, tensors, text_of
from tests.triton.engine_alone import EngineAlone, token_ids
from tests.triton.serving import FORERUN, VLLM, Served
from triton_backend.faces import FACES
from triton_backend.messages import Segments, TokenIds
from triton_backend.protocol import Tensor
from triton_backend.segments import Segment, SegmentKind

GREEDY = {"temperature": 0.0, "max_tokens": 12, "ignore_eos": True}
START = "<|im_start|>"


@pytest.fixture
def forerun(triton: Served) -> Iterator[Stream]:
    with triton.forerun() as stream:
        yield stream


@pytest.mark.parametrize(("model", "face"), [(FORERUN, "forerun"), (VLLM, "vllm")])
def test_the_server_shows_the_tables_of_the_face(triton: Served, model: str, face: str) -> None:
    with InferenceServerClient(triton.addresses.grpc) as client:
        metadata = client.get_model_metadata(model)

    def shown(table: tuple[Tensor, ...]) -> list[tuple[str, str, list[int]]]:
        types = {"STRING": "BYTES"}
        return [(t.name, types.get(t.data_type, t.data_type), [t.length]) for t in table]

    for found, table in (
        (metadata.inputs, FACES[face].inputs),
        (metadata.outputs, FACES[face].outputs),
    ):
        assert [(t.name, t.datatype, list(t.shape)) for t in found] == shown(table)


def test_a_stream_adds_up_to_what_the_engine_says(forerun: Stream, alone: EngineAlone) -> None:
    results = ask(forerun, text="Hello", **GREEDY)
    deltas = alone.deltas("Hello", **GREEDY)
    assert column(results, "token_ids") == token_ids(deltas)
    assert text_of(results) == "".join(delta.text for delta in deltas)
    reasons = column(results, "finish_reason")
    assert reasons == [b""] * (len(results) - 1) + [b"length"]
    assert column(results, "num_prompt_tokens")[-1] == 5
    assert column(results, "num_generated_tokens")[-1] == 12
    assert column(results, "choice") == [0] * len(results)


def test_an_answer_that_is_not_streamed_is_one_response_and_the_same(
    forerun: Stream, alone: EngineAlone
) -> None:
    (result,) = ask(forerun, text="Hello", stream=False, **GREEDY)
    assert is_final(result)
    deltas = alone.deltas("Hello", **GREEDY)
    assert result.as_numpy("token_ids").tolist() == token_ids(deltas)
    assert text_of([result]) == "".join(delta.text for delta in deltas)
    assert result.as_numpy("finish_reason").tolist() == [b"length"]
    assert result.as_numpy("stop_reason").tolist() == [b"null"]


def test_a_prompt_in_its_three_forms_is_the_prompt_of_the_engine(
    forerun: Stream, alone: EngineAlone
) -> None:
    ids = ask(forerun, token_ids=[257, *b"hi"], **GREEDY)
    assert column(ids, "token_ids") == token_ids(alone.deltas(TokenIds((257, *b"hi")), **GREEDY))
    segments = ask(forerun, segments=[START, START], segment_kinds=["control", "text"], **GREEDY)
    prompt = Segments((Segment(SegmentKind.CONTROL, START), Segment(SegmentKind.TEXT, START)))
    assert column(segments, "token_ids") == token_ids(alone.deltas(prompt, **GREEDY))
    assert column(segments, "num_prompt_tokens")[-1] == 1 + len(START)
    text = ask(forerun, text=START, **GREEDY)
    assert column(text, "num_prompt_tokens")[-1] == len(START)


def test_a_drawn_answer_is_that_of_its_seed(forerun: Stream, alone: EngineAlone) -> None:
    params = {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "seed": -3, "max_tokens": 20}
    expected = alone.deltas("Hello", **params)
    assert column(ask(forerun, text="Hello", **params), "token_ids") == token_ids(expected)


def test_logprobs_are_those_of_the_engine(forerun: Stream, alone: EngineAlone) -> None:
    results = ask(forerun, text="Hello", logprobs=3, **GREEDY)
    told = [
        each for delta in alone.deltas("Hello", logprobs=3, **GREEDY) for each in delta.logprobs
    ]
    assert column(results, "logprobs") == pytest.approx([each.logprob for each in told], abs=1e-6)
    assert column(results, "top_ids") == [i for each in told for i in each.top_ids]
    assert column(results, "top_logprobs") == pytest.approx(
        [p for each in told for p in each.top_logprobs], abs=1e-6
    )
    assert ask(forerun, text="Hello", **GREEDY)[0].as_numpy("logprobs") is None


def test_an_answer_stops_where_it_is_told_to_and_says_at_what(
    forerun: Stream, alone: EngineAlone
) -> None:
    whole = alone.deltas("Hello", **GREEDY)
    stop_id = token_ids(whole)[6]
    stopped = ask(forerun, text="Hello", stop_token_ids=[stop_id], **GREEDY)
    assert column(stopped, "finish_reason")[-1] == b"stop"
    assert json.loads(column(stopped, "stop_reason")[-1]) == stop_id
    text = "".join(delta.text for delta in whole)
    stop = text[4:6]
    stopped = ask(forerun, text="Hello", stop=[stop, "never"], **GREEDY)
    assert text_of(stopped) == text[: text.index(stop)]
    assert json.loads(column(stopped, "stop_reason")[-1]) == stop


def ask_for(stream: Stream, *outputs: str, **fields: Any) -> list[InferResult]:
    """Ask for chosen outputs."""
    stream._client.async_stream_infer(
        FORERUN,
        tensors("forerun", **fields),
        outputs=[InferRequestedOutput(name) for name in outputs],
        enable_empty_final_response=True,
    )
    return stream.answer()


def test_only_the_outputs_that_are_wanted_come(forerun: Stream) -> None:
    results = ask_for(forerun, "token_ids", "logprobs", text="Hello", **GREEDY)
    names = {output.name for result in results for output in result.get_response().outputs}
    assert names == {"token_ids"}


def test_clients_that_name_them_get_the_bytes_of_tokens(
    forerun: Stream, alone: EngineAlone
) -> None:
    results = ask_for(forerun, "token_bytes", "top_bytes", text="Hello", logprobs=2, **GREEDY)
    deltas = alone.deltas("Hello", logprobs=2, **GREEDY)
    spell = alone.model.tokenizer.token_bytes
    assert column(results, "token_bytes") == [spell(token_id) for token_id in token_ids(deltas)]
    top_ids = [i for delta in deltas for told in delta.logprobs for i in told.top_ids]
    assert column(results, "top_bytes") == [spell(token_id) for token_id in top_ids]
    assert ask(forerun, text="Hello", **GREEDY)[0].as_numpy("token_bytes") is None


def test_a_hundred_requests_on_one_stream_all_get_their_own_answer(
    forerun: Stream, alone: EngineAlone
) -> None:
    prompts = {f"r{number}": f"{number} bottles" for number in range(100)}
    for request_id, prompt in prompts.items():
        forerun.ask(request_id, text=prompt, temperature=0.0, max_tokens=1 + len(request_id))
    heard: dict[str, list[int]] = {request_id: [] for request_id in prompts}
    num_open = len(prompts)
    while num_open:
        result = forerun.next()
        heard[result.get_response().id] += result.as_numpy("token_ids").tolist()
        num_open -= is_final(result)
    for request_id, prompt in prompts.items():
        params = {"temperature": 0.0, "max_tokens": 1 + len(request_id)}
        assert heard[request_id] == token_ids(alone.deltas(prompt, **params))


FORERUN_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": 3}, "give the prompt as one of token_ids, text, segments; got none."),
    ({"text": "a", "token_ids": [1]}, "got token_ids and text."),
    ({"text": "a", "segment_kinds": ["text"]}, "segment_kinds belongs to segments"),
    ({"segments": ["a"], "segment_kinds": ["text", "text"]}, "equally many; got 1 and 2."),
    ({"segments": ["a"], "segment_kinds": ["other"]}, "segment_kinds[0] must be control or text."),
    ({"segments": ["a"], "segment_kinds": ["control"]}, "segment 0 of the prompt is not a control"),
    ({"text": ""}, "the prompt must have at least 1 token; got 0."),
    ({"text": b"\xff"}, "text is not UTF-8 text from byte 0 on."),
    ({"token_ids": [259]}, "prompt_token_ids[0] must be an id from 0 to 258; got 259."),
    ({"token_ids": [-1]}, "prompt_token_ids[0] must be an id from 0 to 258; got -1."),
    ({"text": "a" * 4096}, "exceed max_seq_len 4096"),
    ({"text": "a" * 100_000}, "the prompt has 100000 characters; more than"),
    ({"text": "a", "max_tokens": 4096}, "exceed max_seq_len 4096"),
    ({"text": "a", "max_tokens": 0}, "max_tokens must be an integer from 1"),
    ({"text": "a", "min_tokens": -1}, "min_tokens must be an integer from 0"),
    ({"text": "a", "min_tokens": 5, "max_tokens": 4}, "min_tokens must be at most max_tokens (4)"),
    ({"text": "a", "temperature": -0.5}, "temperature must be a number from 0 to 100; got -0.5."),
    ({"text": "a", "temperature": float("nan")}, "temperature must be a number from 0 to 100"),
    ({"text": "a", "top_p": 1.5}, "top_p must be a number from 0 to 1; got 1.5."),
    ({"text": "a", "top_k": -1}, "top_k must be an integer from 0"),
    ({"text": "a", "logprobs": 21}, "logprobs must be an integer from 0 to 20; got 21."),
    ({"text": "a", "stop": [""]}, "stop[0] must have 1 to 1024 characters; got 0."),
    ({"text": "a", "stop": ["x"] * 17}, "stop must hold at most 16 strings; got 17."),
    ({"text": "a", "stop_token_ids": [999]}, "stop_token_ids[0] must be an id from 0 to 258"),
]


@pytest.mark.parametrize(("fields", "message"), FORERUN_REFUSALS)
def test_what_is_wrong_is_refused_by_name_and_the_stream_goes_on(
    forerun: Stream, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        ask(forerun, **fields)
    assert str(caught.value.message()).startswith("invalid: ")
    assert message in str(caught.value.message())
    assert len(ask(forerun, text="Hello", stream=False, **GREEDY)) == 1


def test_a_tensor_that_no_face_has_is_refused_by_the_server(triton: Served) -> None:
    with triton.forerun() as stream:
        wrong = tensors("forerun", text="a", max_tokens=3)
        wrong[1]._input.name = "max_tokns"
        stream._client.async_stream_infer(FORERUN, wrong)
        with pytest.raises(
            InferenceServerException, match="unexpected inference input 'max_tokns'"
        ):
            stream.next()


@pytest.mark.parametrize("value", ["x", 3, True, 0.5])
def test_a_parameter_is_refused_by_name_whatever_its_type(triton: Served, value: object) -> None:
    with triton.forerun() as stream:
        for name, message in (
            ("max_tokns", "unknown parameter 'max_tokns'. Did you mean max_tokens"),
            ("max_tokens", "max_tokens is a tensor of this model and came as a parameter"),
        ):
            stream._client.async_stream_infer(
                FORERUN, tensors("forerun", text="a"), parameters={name: value}
            )
            with pytest.raises(InferenceServerException) as caught:
                stream.next()
            assert message in str(caught.value.message())


def test_a_timeout_of_the_client_is_kept(triton: Served) -> None:
    with triton.forerun() as stream:
        stream._client.async_stream_infer(
            FORERUN,
            tensors("forerun", text="Hello", max_tokens=4000, ignore_eos=True),
            timeout=300_000,
        )
        with pytest.raises(
            InferenceServerException, match=r"timeout: the deadline passed after \d+ generated"
        ):
            stream.answer()
    triton.wait_idle()
