"""The shell around the front, with Triton's module played by the test; `tests/triton/` has the real one."""

import importlib
import json
import logging
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from builder.errors import UserError
from tests.triton_backend.fake_triton import (
    FINAL,
    FakeError,
    FakeFamily,
    FakeRequest,
    FakeResponse,
    FakeSender,
    FakeTensor,
)
from tests.triton_backend.host_stage import await_true
from triton_backend.metrics import METRICS
from triton_backend.protocol import floats, integers, strings
from triton_backend.responder import Failure, FailureKind


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The module, imported beside a `pb_utils` of ours."""
    fake: Any = ModuleType("triton_python_backend_utils")
    fake.Tensor, fake.InferenceResponse, fake.TritonError = FakeTensor, FakeResponse, FakeError
    fake.MetricFamily = FakeFamily
    fake.TRITONSERVER_RESPONSE_COMPLETE_FINAL = FINAL
    fake.TritonModelException = type("TritonModelException", (Exception,), {})
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", fake)
    monkeypatch.delitem(sys.modules, "triton_backend.model", raising=False)
    yield importlib.import_module("triton_backend.model")  # noqa: TID251 - beside a fake
    sys.modules.pop("triton_backend.model", None)


def arguments(name: str = "chat", **parameters: str) -> dict[str, str]:
    given = {key: {"string_value": value} for key, value in parameters.items()}
    return {"model_name": name, "model_config": json.dumps({"parameters": given})}


def call_of(model: ModuleType, **given: Any) -> tuple[Any, FakeSender]:
    request = FakeRequest(**given)
    return model.TritonCall(request), request.sender


def test_a_call_shows_what_triton_has(model: ModuleType) -> None:
    call, _ = call_of(
        model, text=strings(b"hi"), parameters='{"a": 1, "b": true}', timeout_us=1_500_000
    )
    assert list(call.tensors) == ["text"]
    assert call.parameters == {"a": 1, "b": True}
    assert call.timeout_s == 1.5
    assert call.request_id == "r1"
    assert call.wanted == {"text", "finish_reason"}
    bare, _ = call_of(model)
    assert (bare.parameters, bare.timeout_s) == ({}, None)


def test_the_last_response_carries_the_final_flag(model: ModuleType) -> None:
    call, sender = call_of(model)
    call.respond({"text": strings(b"a")}, is_last=False)
    call.respond({"text": strings(b"b"), "ids": integers(1)}, is_last=True)
    assert [(response.tensors, flags) for response, flags in sender.sent] == [
        ({"text": [b"a"]}, 0),
        ({"text": [b"b"], "ids": [1]}, FINAL),
    ]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (FailureKind.INVALID, FakeError.INVALID_ARG),
        (FailureKind.UNAVAILABLE, FakeError.UNAVAILABLE),
        (FailureKind.INTERNAL, FakeError.INTERNAL),
        (FailureKind.CANCELLED, FakeError.CANCELLED),
    ],
)
def test_a_failure_has_the_code_that_triton_knows(
    model: ModuleType, kind: FailureKind, code: int
) -> None:
    call, sender = call_of(model)
    call.fail(Failure(kind, "the reason."))
    ((response, flags),) = sender.sent
    assert response.error.message == f"{kind}: the reason."  # a gRPC stream loses the code
    assert (response.error.code, flags) == (code, FINAL)


def test_after_the_last_response_triton_is_not_touched_again(model: ModuleType) -> None:
    call, sender = call_of(model)
    assert not call.is_cancelled()
    sender.has_left = True
    assert call.is_cancelled()
    call.respond({}, is_last=True)
    call.respond({}, is_last=False)
    call.fail(Failure(FailureKind.INTERNAL, "late"))
    assert not call.is_cancelled()
    assert (len(sender.sent), sender.num_questions) == (1, 2)


@pytest.fixture
def triton_model(model: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A model that finds its host in a folder of its own."""
    monkeypatch.setattr("triton_backend.attach.runtime_folder", lambda: tmp_path)
    monkeypatch.setattr(model, "end_with", lambda _: None)  # it would end the tests, too
    monkeypatch.setattr(FakeFamily, "made", {})
    return model.TritonPythonModel()


def test_a_request_goes_the_whole_way(triton_model: Any, tiny_artifact: Path) -> None:
    triton_model.initialize(
        arguments(face="forerun", deployment="chat", artifact=str(tiny_artifact), threads="1")
    )
    assert triton_model.is_ready()
    good = FakeRequest(text=strings(b"hi"), max_tokens=integers(4), temperature=floats(0))
    bad = FakeRequest(text=strings(b"hi"), max_tokens=integers(-4))
    triton_model.execute([good, bad])
    await_true(lambda: good.sender.is_over and bad.sender.is_over)
    tokens = FakeFamily.made["forerun_generated_tokens_total"]
    await_true(lambda: tokens[2].value == 4)
    triton_model.finalize()
    assert tokens[:2] == ("counter", {"model": "chat", "deployment": "chat"})
    assert FakeFamily.made["forerun_kv_blocks"][0] == "gauge"
    assert good.sender.sent[-1][0].tensors["finish_reason"] == [b"length"]
    (refusal, _), *_ = bad.sender.sent
    assert refusal.error.code == FakeError.INVALID_ARG


def test_one_model_of_a_deployment_tells_of_their_engine(
    triton_model: Any, tiny_artifact: Path
) -> None:
    artifact = str(tiny_artifact)
    triton_model.initialize(
        arguments("other", face="vllm", deployment="chat", artifact=artifact, threads="1")
    )
    await_true(triton_model.is_ready)
    triton_model.finalize()
    assert not FakeFamily.made


HANGING_METER = """
import sys, threading, time
from types import ModuleType, SimpleNamespace
fake = ModuleType("triton_python_backend_utils")
hang = SimpleNamespace(set=lambda value: time.sleep(600), increment=None)
fake.MetricFamily = lambda **_: SimpleNamespace(Metric=lambda **_: hang)
fake.MetricFamily.COUNTER = fake.MetricFamily.GAUGE = 0
sys.modules[fake.__name__] = fake
from triton_backend import model
from triton_backend.metrics import METRICS
model.HANGS_S = 1
model.TritonMeter(METRICS[0], {})(3)
"""


def test_a_meter_that_hangs_ends_the_process() -> None:
    result = subprocess.run([sys.executable, "-c", HANGING_METER], timeout=60, check=False)
    assert result.returncode == -signal.SIGALRM


def test_a_meter_is_left_alone_without_a_server_and_leaves_no_alarm(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.os, "getppid", lambda: 7)
    meter = model.TritonMeter(METRICS[0], {"model": "chat"})
    meter(3)
    monkeypatch.setattr(model.os, "getppid", lambda: 1)
    meter(4)
    assert FakeFamily.made[METRICS[0].name][2].value == 3
    assert signal.alarm(0) == 0


def test_the_process_ends_when_its_server_has(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = iter([7, 7, 1])
    codes: list[int] = []
    monkeypatch.setattr(model, "WATCH_S", 0)
    monkeypatch.setattr(model.os, "getppid", lambda: next(parents))
    monkeypatch.setattr(model.os, "_exit", codes.append)
    model.end_with(7)
    assert codes == [1]


def test_whatever_fails_while_a_request_is_taken_is_no_news_for_triton(
    model: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    quote = "words of a prompt"

    def broken(call: object) -> None:
        raise KeyError(quote)

    triton_model = model.TritonPythonModel()
    triton_model._front = SimpleNamespace(take=broken)
    requests = [FakeRequest(text=strings(b"hi")) for _ in range(2)]
    triton_model.execute(requests)
    for request in requests:
        ((response, flags),) = request.sender.sent
        assert (response.error.code, flags) == (FakeError.INTERNAL, FINAL)
        assert response.error.message == "internal: the front failed to take the request."
    assert "KeyError" in caplog.text
    assert quote not in caplog.text


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, "chat can't be served: config.pbtxt lacks the parameter face; run builder deploy"),
        (
            {"face": "moon", "deployment": "chat", "artifact": "/nowhere"},
            "chat can't be served: unknown face 'moon'",
        ),
        (
            {"face": "vllm", "deployment": "chat", "artifact": "/nowhere"},
            "chat can't be served: there is no artifact at /nowhere",
        ),
    ],
)
def test_a_model_that_can_not_be_served_says_why_in_one_line(
    model: ModuleType, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message) as caught:
        model.TritonPythonModel().initialize(arguments(**parameters))
    assert type(caught.value).__name__ == "TritonModelException"
    assert "\n" not in str(caught.value)


def test_numpy_2_is_refused_under_a_server_for_numpy_1(model: ModuleType) -> None:
    old = "__init__(self, output_tensors: List[Tensor] = [], error: TritonError = None)"
    new = old.removesuffix(")") + ", parameters: object = None)"
    for version, signature in (("1.26.4", old), ("1.26.4", new), ("2.0.0", new), ("10.1", new)):
        model.refuse_other_numpy(version, signature)
    for version in ("2.0.0", "2.4.1", "10.1"):
        with pytest.raises(UserError, match=rf"needs numpy 1, and {version} is installed; run pip"):
            model.refuse_other_numpy(version, old)


def test_the_guard_looks_at_the_numpy_that_runs(
    model: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "__version__", "2.1.0")
    with pytest.raises(Exception, match="chat can't be served: this Triton server needs numpy 1"):
        model.TritonPythonModel().initialize(arguments())
