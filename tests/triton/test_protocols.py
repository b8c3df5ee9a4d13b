"""The faces over Triton's other protocols: HTTP generate and generate_stream, and gRPC under asyncio."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tritonclient.grpc.aio import InferenceServerClient

from tests.triton.clients import WAIT_S, call, generate_stream, tensors
from tests.triton.engine_alone import EngineAlone
from tests.triton.serving import FORERUN, VLLM, Served
from triton_backend.histogram import FIRST_TOKEN_BOUNDS_S
from triton_backend.metrics import METRICS

GREEDY = {"temperature": 0, "max_tokens": 12, "ignore_eos": True}
LONG = {"max_tokens": 4000, "ignore_eos": True}


def generate(triton: Served, model: str, **content: Any) -> tuple[int, dict[str, Any]]:
    status, body = call(triton.addresses.http, "POST", f"/v2/models/{model}/generate", content)
    return status, json.loads(body)


def test_generate_gives_a_whole_answer(triton: Served, alone: EngineAlone) -> None:
    status, answer = generate(triton, FORERUN, text="Hello", stream=False, **GREEDY)
    assert status == 200
    assert answer["text"] == alone.text("Hello", **GREEDY)
    assert (answer["finish_reason"], answer["num_generated_tokens"]) == ("length", 12)


def test_generate_stream_adds_up(triton: Served, alone: EngineAlone) -> None:
    events = list(generate_stream(triton.addresses.http, FORERUN, text="Hello", **GREEDY))
    assert "".join(event["text"] for event in events) == alone.text("Hello", **GREEDY)
    assert [bool(event["finish_reason"]) for event in events] == [False] * (len(events) - 1) + [
        True
    ]


def test_generate_takes_the_id_and_the_parameters_of_its_json(triton: Served) -> None:
    status, answer = generate(
        triton, FORERUN, id="r1", parameters={**GREEDY, "stream": False}, text="Hello"
    )
    assert status == 200
    assert answer["num_generated_tokens"] == 12


def test_generate_answers_as_vllm_does(triton: Served, alone: EngineAlone) -> None:
    status, answer = generate(triton, VLLM, text_input="Hello", **GREEDY)
    assert (status, answer["text_output"]) == (200, "Hello" + alone.text("Hello", **GREEDY))
    sampling = json.dumps(GREEDY)
    status, answer = generate(triton, VLLM, text_input="Hello", sampling_parameters=sampling)
    assert (status, answer["text_output"]) == (200, "Hello" + alone.text("Hello", **GREEDY))
    events = generate_stream(triton.addresses.http, VLLM, text_input="Hello", stream=True, **GREEDY)
    text = "".join(event["text_output"] for event in events)
    assert text == alone.text("Hello", **GREEDY)


@pytest.mark.parametrize(
    ("model", "content", "message"),
    [
        (FORERUN, {"text": "a", "max_tokns": 3}, "invalid: unknown parameter 'max_tokns'. Did you"),
        (FORERUN, {"text": "a", "timeout": 3}, "invalid: unknown parameter 'timeout'"),
        (FORERUN, {"max_tokens": 3}, "invalid: give the prompt as one of"),
        (FORERUN, {"text": "a", "top_k": -1, "stream": False}, "invalid: top_k must be an integer"),
        (
            VLLM,
            {"text_input": "a", "best_of": 2},
            "invalid: sampling field best_of is not supported",
        ),
        (VLLM, {"text_input": "a", "max_token": 2}, "invalid: unknown sampling field 'max_token'"),
        (VLLM, {"max_tokens": 2}, "expected number of inputs"),
    ],
)
def test_a_refusal_is_a_client_error_that_names_the_field(
    triton: Served, model: str, content: dict[str, Any], message: str
) -> None:
    status, answer = generate(triton, model, **content)
    assert status == 400
    assert message in answer["error"]
    status, body = call(
        triton.addresses.http, "POST", f"/v2/models/{model}/generate_stream", content
    )
    assert status == 400
    assert message in json.loads(body.removeprefix(b"data: "))["error"]


def test_hanging_up_a_stream_frees_the_engine(triton: Served) -> None:
    events = generate_stream(triton.addresses.http, FORERUN, text="Hello", **LONG)
    next(events)
    assert triton.snapshot().num_running == 1
    events.close()  # type: ignore[attr-defined]
    assert triton.wait_idle().num_used_blocks == 0


def metrics_of(triton: Served, model: str) -> dict[str, float]:
    status, body = call(triton.addresses.metrics, "GET", "/metrics")
    assert status == 200
    lines = [line for line in body.decode().splitlines() if f'model="{model}"' in line]
    return {line.partition("{")[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_the_metrics_endpoint_tells_of_the_engine(triton: Served) -> None:
    generate(triton, FORERUN, text="Hello", stream=False, **GREEDY)
    deadline = time.monotonic() + WAIT_S
    found: dict[str, float] = {}
    while not found or found["forerun_requests_running"] > 0:  # as it was up to a second ago
        assert time.monotonic() < deadline
        time.sleep(0.05)
        found = metrics_of(triton, FORERUN)
        if found.get("forerun_generated_tokens_total", 0) < GREEDY["max_tokens"]:
            found = {}
    assert {metric.name for metric in METRICS} <= set(found)
    assert found["forerun_kv_blocks"] > found["forerun_kv_blocks_used"] == 0


def test_the_engine_behind_several_models_is_told_once(triton: Served) -> None:
    _, body = call(triton.addresses.metrics, "GET", "/metrics")
    told = [line for line in body.decode().splitlines() if line.startswith("forerun_")]
    assert told
    assert all(f'model="{FORERUN}"' in line for line in told)
    assert VLLM.encode() in body


def test_histograms_of_the_endpoint_are_as_prometheus_reads_them(triton: Served) -> None:
    generate(triton, FORERUN, text="Hello", stream=False, **GREEDY)
    deadline = time.monotonic() + WAIT_S
    name, count = "forerun_time_to_first_token_seconds", 0.0
    while not count:
        assert time.monotonic() < deadline
        time.sleep(0.05)
        count = metrics_of(triton, FORERUN).get(f"{name}_count", 0)
    _, body = call(triton.addresses.metrics, "GET", "/metrics")
    found = {
        float(re.search('le="([^"]*)"', line)[1]): float(line.rpartition(" ")[2])  # type: ignore[index]
        for line in body.decode().splitlines()
        if line.startswith(f"{name}_bucket") and f'model="{FORERUN}"' in line
    }
    buckets = [found[bound] for bound in sorted(found)]
    assert sorted(found) == [*FIRST_TOKEN_BOUNDS_S, float("inf")]
    assert buckets == sorted(buckets)
    assert buckets[-1] >= count


async def requests(count: int, **fields: Any) -> AsyncIterator[dict[str, Any]]:
    for number in range(count):
        inputs = tensors("forerun", text=f"Hello {number}", **fields)
        yield {"model_name": FORERUN, "inputs": inputs, "request_id": str(number)}


def test_under_asyncio_requests_of_one_call_all_get_their_answer(
    triton: Served, alone: EngineAlone
) -> None:
    async def texts() -> dict[str, str]:
        heard: dict[str, bytes] = {}
        async with InferenceServerClient(triton.addresses.grpc) as client:
            async for result, error in client.stream_infer(requests(5, **GREEDY)):
                assert error is None
                request_id = result.get_response().id
                heard[request_id] = heard.get(request_id, b"") + result.as_numpy("text")[0]
        return {request_id: text.decode() for request_id, text in heard.items()}

    expected = {str(number): alone.text(f"Hello {number}", **GREEDY) for number in range(5)}
    assert asyncio.run(texts()) == expected


def test_cancelling_a_call_under_asyncio_frees_the_engine(triton: Served) -> None:
    async def leave() -> None:
        async with InferenceServerClient(triton.addresses.grpc) as client:
            responses = client.stream_infer(requests(3, **LONG))
            async for _ in responses:
                assert triton.snapshot().num_running > 0
                responses.cancel()
                break

    asyncio.run(leave())
    assert triton.wait_idle().num_used_blocks == 0
