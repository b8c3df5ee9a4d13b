"""The OpenAI shim before a real server, and the openai package's client of it."""

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import openai

from tests.triton.clients import WAIT_S
from tests.triton.serving import Served
from triton_backend.launcher.asgi_thread import running_application
from triton_backend.openai.model import Model, open_model
from triton_backend.openai.server import server_config
from triton_backend.openai.settings import ServedModel, ShimSettings


@dataclass(frozen=True, slots=True)
class Shim:
    """A shim before a server with one deployment."""

    served: Served
    address: str
    model: Model

    @property
    def url(self) -> str:
        return f"http://{self.address}/v1"

    def post(self, path: str, **body: Any) -> http.client.HTTPConnection:
        """Send a request, and give the connection that its answer will come on."""
        connection = http.client.HTTPConnection(self.address, timeout=WAIT_S)
        content = json.dumps({"model": self.model.name, **body})
        connection.request("POST", path, content, {"content-type": "application/json"})
        return connection


@contextlib.contextmanager
def shim_before(served: Served, served_model: ServedModel, **given: Any) -> Iterator[Shim]:
    settings = ShimSettings(served.addresses.grpc, (served_model,), **given)
    config = server_config(settings, port=0, drain_s=1)
    with running_application(config, service="openai") as thread:
        yield Shim(served, thread.address, open_model(served_model, settings.clock))


def client_of(shim: Shim) -> openai.OpenAI:
    return openai.OpenAI(base_url=shim.url, api_key="none", max_retries=0, timeout=WAIT_S)
