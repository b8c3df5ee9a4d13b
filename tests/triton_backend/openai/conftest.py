"""The shim in a thread, on loopback, before a face that plays scripts."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.built import compile_model
from tests.models import tiny_llama
from tests.triton_backend.openai.fake_face import FakeFace, serving
from triton_backend.launcher.asgi_thread import running_application
from triton_backend.openai.server import server_config
from triton_backend.openai.settings import ServedModel, ShimSettings

MODEL = "tiny"
NOW = 1_700_000_000.25


@contextlib.contextmanager
def running(settings: ShimSettings) -> Iterator[str]:
    """Run the shim; give its URL."""
    config = server_config(settings, port=0, drain_s=1)
    with running_application(config, service="openai") as shim:
        yield f"http://{shim.address}"


@pytest.fixture(scope="session")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shim")
    return compile_model(tiny_llama(folder / "model"), folder / "artifact").root


@pytest.fixture(scope="session")
def fake_face() -> Iterator[tuple[FakeFace, str]]:
    face = FakeFace()
    with serving(face) as address:
        yield face, address


@pytest.fixture
def face(fake_face: tuple[FakeFace, str]) -> FakeFace:
    fake_face[0].reset()
    return fake_face[0]


@pytest.fixture
def address(fake_face: tuple[FakeFace, str]) -> str:
    return fake_face[1]


@pytest.fixture(scope="session")
def settings(artifact: Path, fake_face: tuple[FakeFace, str]) -> ShimSettings:
    models = (ServedModel(MODEL, artifact),)
    return ShimSettings(
        fake_face[1], models, secret=b"s" * 32, max_body_bytes=100_000, clock=lambda: NOW
    )


@pytest.fixture(scope="session")
def url(settings: ShimSettings) -> Iterator[str]:
    with running(settings) as url:
        yield url


@pytest.fixture(scope="session")
def plain_client(url: str) -> Iterator[httpx.Client]:
    """Give a client that knows nothing of OpenAI."""
    with httpx.Client(base_url=url, timeout=60) as client:
        yield client


@pytest.fixture
def http(plain_client: httpx.Client, face: FakeFace) -> httpx.Client:
    return plain_client


@pytest.fixture
def client(url: str, face: FakeFace) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def chat() -> dict[str, Any]:
    """Give the least that a chat needs."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
