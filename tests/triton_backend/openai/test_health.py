"""Whether the shim lives, and whether it can take requests."""

import asyncio

import httpx

from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.making import VOUCHING, free_port
from triton_backend.openai.face import Face


def test_liveness_does_not_ask_the_face(http: httpx.Client, face: FakeFace) -> None:
    face.ready = False
    assert http.get("/health/live").json() == {"status": "live"}


def test_the_shim_is_ready_when_its_models_are(http: httpx.Client, face: FakeFace) -> None:
    assert http.get("/health/ready").json() == {"status": "ready"}
    face.ready = False
    response = http.get("/health/ready")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "unavailable")


def test_a_face_that_is_not_there_is_not_ready() -> None:
    async def is_ready() -> bool:
        async with Face(f"127.0.0.1:{free_port()}", 60, VOUCHING) as face:
            return await face.is_ready("tiny")

    assert not asyncio.run(is_ready())
