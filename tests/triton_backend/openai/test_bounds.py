"""Bounds on connections: how many, how slow, and what is said to those beyond."""

import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from urllib.parse import urlsplit

import httpx
import pytest

from tests.triton_backend.openai.conftest import MODEL, running
from triton_backend.openai.settings import ShimSettings

PATIENCE_S = 60
NUM_CONNECTIONS = 3


@pytest.fixture(scope="module")
def bounded(settings: ShimSettings) -> Iterator[str]:
    bounds = {"max_connections": NUM_CONNECTIONS, "head_s": 0.5, "body_s": 0.5}
    with running(replace(settings, **bounds)) as url:  # type: ignore[arg-type]
        yield url


def connected(url: str) -> socket.socket:
    address = urlsplit(url)
    return socket.create_connection((str(address.hostname), address.port), PATIENCE_S)


def said(connection: socket.socket) -> tuple[int, str]:
    """Read until the server closes; give status and the code of the error object."""
    data = b""
    while part := connection.recv(65536):
        data += part
    head, _, body = data.partition(b"\r\n\r\n")
    assert b"application/json" in head
    return int(head.split()[1]), json.loads(body)["error"]["code"]


def test_connections_beyond_the_bound_are_told_to_try_again(bounded: str) -> None:
    with ExitStack() as stack:
        for _ in range(NUM_CONNECTIONS):
            stack.enter_context(connected(bounded))
        assert said(stack.enter_context(connected(bounded))) == (503, "unavailable")
    assert httpx.get(f"{bounded}/health/live").status_code == 200


@pytest.mark.parametrize("start", [b"", b"POST /v1/chat/comp", b"GET / HTTP/1.1\r\nhost: a\r\nx-"])
def test_a_head_that_does_not_come_ends_the_connection(bounded: str, start: bytes) -> None:
    with connected(bounded) as connection:
        connection.sendall(start)
        assert said(connection) == (408, "timeout")


def test_a_second_head_must_come_in_time_as_well(bounded: str) -> None:
    with connected(bounded) as connection:
        connection.sendall(b"GET /health/live HTTP/1.1\r\nhost: a\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET /health")
        assert said(connection) == (408, "timeout")


def test_a_body_that_does_not_come_is_an_error(bounded: str) -> None:
    with connected(bounded) as connection:
        head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
        connection.sendall(head + b"content-length: 100\r\n\r\n{")
        assert said(connection) == (408, "timeout")


@pytest.mark.parametrize(
    "data",
    [b"\x00\x01\r\n\r\n", b"GET  HTTP/9\r\n\r\n", b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n"],
)
def test_what_is_no_http_gets_an_error_object(bounded: str, data: bytes) -> None:
    with connected(bounded) as connection:
        connection.sendall(data)
        assert said(connection) == (400, "invalid_http")


def test_a_chat_of_more_messages_than_tokens_fit_is_refused_unrendered(url: str) -> None:
    messages = [{"role": "user", "content": "a"}] * 2000
    answer = httpx.post(f"{url}/v1/chat/completions", json={"model": MODEL, "messages": messages})
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "context_length_exceeded"
