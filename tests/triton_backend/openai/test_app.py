"""The application as a whole: its models, its log, its start."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from builder.errors import ArtifactError
from tests.triton_backend.openai.conftest import MODEL, NOW, running
from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.scripts import failing, hanging, saying
from triton_backend.openai.app import create_app
from triton_backend.openai.settings import ServedModel, ShimSettings

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
CANARY = "canary-Zb3"


def test_the_models_are_listed(http: httpx.Client) -> None:
    listed = http.get("/v1/models").json()
    card = {
        "id": MODEL,
        "created": int(NOW),
        "max_model_len": 512,
        "object": "model",
        "owned_by": "forerun",
    }
    assert listed == {"data": [card], "object": "list"}
    assert http.get(f"/v1/models/{MODEL}").json() == card


@pytest.mark.parametrize("name", ["other", "org/other", "%2e%2e"])
def test_an_unknown_model_is_not_found(name: str, http: httpx.Client) -> None:
    response = http.get(f"/v1/models/{name}")
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "model_not_found"


def test_a_shim_may_serve_several_models(
    settings: ShimSettings, face: FakeFace, artifact: Path, chat: dict[str, Any]
) -> None:
    models = (*settings.models, ServedModel("second", artifact))
    with running(replace(settings, models=models)) as url, httpx.Client(base_url=url) as http:
        assert [card["id"] for card in http.get("/v1/models").json()["data"]] == [MODEL, "second"]
        assert http.post(CHATS, json=chat | {"model": "second"}).json()["model"] == "second"
    assert [asked.model for asked in face.asked] == ["second"]


def test_a_model_that_cant_be_used_is_refused_at_the_start(
    settings: ShimSettings, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError):
        create_app(replace(settings, models=(ServedModel("none", tmp_path),)))


def test_no_prompt_and_no_answer_reaches_a_log(
    http: httpx.Client,
    face: FakeFace,
    chat: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    message = {"role": "user", "content": CANARY}
    text = {"model": MODEL, "prompt": CANARY, "stop": [CANARY]}
    for script in (saying(CANARY), failing(f"internal: {CANARY}", after=(CANARY,))):
        face.script = script
        for extra in ({}, {"stream": True}, {"temperature": CANARY}, {"tools": [CANARY]}):
            http.post(CHATS, json=chat | {"messages": [message]} | extra)
            http.post(COMPLETIONS, json=text | extra)
    http.post(CHATS, content=f'{{"{CANARY}'.encode(), headers={"content-type": "application/json"})
    assert len(face.asked) == 8
    shim = [record for record in caplog.records if not record.name.startswith("httpcore")]
    assert not [record for record in shim if CANARY in record.getMessage()]
    assert CANARY not in "".join(capfd.readouterr())


@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_answer_that_outlasts_the_shutdown_is_an_error(
    is_streamed: bool, settings: ShimSettings, face: FakeFace, chat: dict[str, Any]
) -> None:
    face.script = hanging()
    body = chat | {"stream": is_streamed}
    with ThreadPoolExecutor(1) as pool:
        with running(settings) as url:
            response = pool.submit(httpx.post, f"{url}{CHATS}", json=body, timeout=60)
            assert face.wait_for_calls(1)
        assert response.result().status_code == 503
    assert face.wait_for_calls(0)
