"""A client that goes away: its answers are cancelled, whatever stage they are in."""

import http.client
import json
import logging
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.triton_backend.openai.conftest import MODEL
from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.scripts import hanging, saying

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture
def connection(url: str) -> Iterator[http.client.HTTPConnection]:
    address = urlsplit(url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    yield connection
    connection.close()


def send(connection: http.client.HTTPConnection, path: str, body: dict[str, Any]) -> None:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})


def reset(connection: http.client.HTTPConnection) -> None:
    """Close as a crashed client does, without saying goodbye."""
    assert connection.sock is not None
    connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    connection.close()


@pytest.mark.parametrize("texts", [(), ("Hello",)])
@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("leave", [http.client.HTTPConnection.close, reset])
def test_a_client_that_leaves_cancels_its_chat(
    texts: tuple[str, ...],
    is_streamed: bool,
    leave: Any,
    connection: http.client.HTTPConnection,
    face: FakeFace,
    chat: dict[str, Any],
) -> None:
    face.script = hanging(*texts)
    send(connection, CHATS, chat | {"stream": is_streamed})
    assert face.wait_for_calls(1)
    leave(connection)
    assert face.wait_for_calls(0)


def test_a_client_that_heard_a_part_cancels_the_rest(
    connection: http.client.HTTPConnection, face: FakeFace, chat: dict[str, Any]
) -> None:
    face.script = hanging("Hello")
    send(connection, CHATS, chat | {"stream": True})
    response = connection.getresponse()
    heard = b""
    while b"Hello" not in heard:
        heard += response.read1()
    response.close()
    connection.close()
    assert face.wait_for_calls(0)


@pytest.mark.parametrize("is_streamed", [False, True])
def test_all_prompts_of_a_request_are_cancelled_together(
    is_streamed: bool, connection: http.client.HTTPConnection, face: FakeFace
) -> None:
    face.script = hanging("x")
    prompts = ["a", "b", "c"]
    send(connection, COMPLETIONS, {"model": MODEL, "prompt": prompts, "stream": is_streamed})
    assert face.wait_for_calls(1)
    connection.close()
    assert face.wait_for_calls(0)
    assert all(asked.call_ended.is_set() for asked in face.asked)


def test_a_client_that_leaves_takes_no_other_with_it(
    connection: http.client.HTTPConnection,
    face: FakeFace,
    http: httpx.Client,
    chat: dict[str, Any],
) -> None:
    face.script = hanging("x")
    send(connection, CHATS, chat)
    assert face.wait_for_calls(1)
    face.script = saying("y")
    assert http.post(CHATS, json=chat).status_code == 200
    assert face.wait_for_calls(1)
    connection.close()
    assert face.wait_for_calls(0)


def test_a_client_that_leaves_inside_its_body_leaves_no_trace(
    url: str, face: FakeFace, caplog: pytest.LogCaptureFixture, http: httpx.Client
) -> None:
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), 60) as sock:
        head = f"POST {CHATS} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        sock.sendall(head.encode() + b"content-length: 100\r\n\r\n{")
    assert http.get("/health/live").status_code == 200
    assert face.asked == []
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_cancelled_chat_leaves_no_trace_in_the_log(
    connection: http.client.HTTPConnection,
    face: FakeFace,
    chat: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    face.script = hanging("Hello")
    for is_streamed in (False, True):
        send(connection, CHATS, chat | {"stream": is_streamed})
        assert face.wait_for_calls(1)
        connection.close()
        assert face.wait_for_calls(0)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
