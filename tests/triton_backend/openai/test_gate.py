"""Keys, and the last resort for what nobody foresaw."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.triton_backend.openai.conftest import MODEL, running
from tests.triton_backend.openai.fake_face import FakeFace
from triton_backend.openai.app import create_app
from triton_backend.openai.gate import Gate
from triton_backend.openai.settings import ShimSettings

KEYS = ("first-key", "zweiter-Schlüssel")
CHATS = "/v1/chat/completions"


@pytest.fixture(scope="module")
def locked_client(settings: ShimSettings) -> Iterator[httpx.Client]:
    with (
        running(replace(settings, api_keys=KEYS)) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


@pytest.fixture
def locked(locked_client: httpx.Client, face: FakeFace) -> httpx.Client:
    return locked_client


def paths(settings: ShimSettings) -> list[str]:
    return [route.path.replace("{model:path}", MODEL) for route in create_app(settings).routes]


def bearer(key: str) -> dict[str, bytes]:
    return {"authorization": f"Bearer {key}".encode()}


def test_every_route_but_liveness_needs_a_key(locked: httpx.Client, settings: ShimSettings) -> None:
    found = paths(settings)
    assert len(found) == 6
    open_paths = [path for path in found if locked.get(path).status_code != 401]
    assert open_paths == ["/health/live"]


@pytest.mark.parametrize("path", ["/", "/nothing", "/health/live/", "//health/live", "/docs"])
def test_a_path_that_is_no_route_needs_a_key_too(path: str, locked: httpx.Client) -> None:
    assert locked.request("GET", str(locked.base_url) + path).status_code == 401


@pytest.mark.parametrize("key", KEYS)
def test_each_key_opens(key: str, locked: httpx.Client, chat: dict[str, Any]) -> None:
    assert locked.post(CHATS, json=chat, headers=bearer(key)).status_code == 200
    assert locked.get("/v1/models", headers=bearer(key)).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("first-ke"),
        bearer("first-key2"),
        bearer("FIRST-KEY"),
        bearer("first-key, zweiter-Schlüssel"),
        {"authorization": b"first-key"},
        {"authorization": b"Basic first-key"},
        {"authorization": b"\xff\xfe"},
        {"x-api-key": b"first-key"},
    ],
)
def test_a_wrong_key_is_refused_before_the_request_is_read(
    headers: dict[str, bytes], locked: httpx.Client, face: FakeFace
) -> None:
    response = locked.post(CHATS, content=b"{", headers=headers)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", None)
    assert error["code"] == "invalid_api_key"
    assert "first" not in response.text


def test_keys_are_not_shown_by_the_settings(settings: ShimSettings) -> None:
    assert "first-key" not in repr(replace(settings, api_keys=KEYS))


def responses_of(app: Any) -> list[Message]:
    """Send one request through the gate, and give all messages of the response."""
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "path": "/", "headers": []}
    asyncio.run(Gate(app, ())(scope, receive, send))
    return sent


def test_an_unforeseen_exception_is_an_error_object_and_a_line_without_its_message(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ValueError("canary")

    start, body = responses_of(app)
    assert start["status"] == 500
    assert b'"code":"internal"' in body["body"]
    assert b"canary" not in body["body"]
    assert "unforeseen ValueError at " in caplog.text
    assert "canary" not in caplog.text


def test_an_unforeseen_exception_in_a_response_adds_nothing_to_it() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise ValueError

    assert [message["type"] for message in responses_of(app)] == ["http.response.start"]


def test_each_key_is_a_tenant_of_its_own_and_is_not_told(
    locked: httpx.Client, face: FakeFace, chat: dict[str, Any]
) -> None:
    for key in (*KEYS, *KEYS):
        assert locked.post(CHATS, json=chat, headers=bearer(key)).status_code == 200
    tenants = [asked.parameters["tenant"] for asked in face.asked]
    assert tenants[:2] == tenants[2:]
    assert tenants[0] != tenants[1]
    assert all(len(tenant) == 64 for tenant in tenants)


def test_without_keys_all_are_one_tenant(
    http: httpx.Client, face: FakeFace, chat: dict[str, Any]
) -> None:
    http.post(CHATS, json=chat, headers=bearer("any"))
    http.post(CHATS, json=chat)
    assert [asked.parameters["tenant"] for asked in face.asked] == ["anonymous"] * 2


def test_a_client_can_not_name_its_tenant(
    http: httpx.Client, face: FakeFace, chat: dict[str, Any]
) -> None:
    for name in ("tenant", "tenant_tag", "tenant_expires"):
        assert http.post(CHATS, json=chat | {name: "somebody"}).status_code == 400
    assert face.asked == []


def test_a_shim_without_a_secret_vouches_for_nobody(
    settings: ShimSettings, face: FakeFace, chat: dict[str, Any]
) -> None:
    with (
        running(replace(settings, secret=b"")) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        assert client.post(CHATS, json=chat).status_code == 200
    assert face.asked[0].parameters.keys() == {"timeout"}


def test_the_secret_is_not_shown_by_the_settings(settings: ShimSettings) -> None:
    assert "ssss" not in repr(settings)
