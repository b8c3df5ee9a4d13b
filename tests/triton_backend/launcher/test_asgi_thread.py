"""An application in a thread: it takes requests, drains, is cut off, and its end is noticed."""

import asyncio
import http.client
import socket
import threading

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from builder.errors import ServerError, UserError
from triton_backend.launcher.asgi_thread import AsgiThread, running_application

HOST = "127.0.0.1"
WAIT_S = 60


class Slow:
    """An application whose one answer has a first part at once, and a last one when it is let go."""

    def __init__(self) -> None:
        self.may_finish = threading.Event()
        self.was_cancelled = threading.Event()
        self.app = Starlette(routes=[Route("/", self.answer)])

    async def answer(self, _: Request) -> StreamingResponse:
        return StreamingResponse(self.parts())

    async def parts(self):
        yield b"first "
        try:
            while not self.may_finish.is_set():
                await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            self.was_cancelled.set()
            raise
        yield b"last"


@pytest.fixture
def slow() -> Slow:
    return Slow()


def config(app, *, port: int = 0, drain_s: int = 0) -> uvicorn.Config:
    return uvicorn.Config(
        app, host=HOST, port=port, log_config=None, timeout_graceful_shutdown=drain_s
    )


def ask(thread: AsgiThread) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection(thread.address, timeout=WAIT_S)
    connection.request("GET", "/")
    return connection, connection.getresponse()


def test_an_application_answers_where_it_says(slow: Slow) -> None:
    slow.may_finish.set()
    with running_application(config(slow.app), service="slow") as thread:
        connection, response = ask(thread)
        assert response.read() == b"first last"
        connection.close()


def test_its_thread_and_its_port_are_gone_afterwards(slow: Slow) -> None:
    with running_application(config(slow.app), service="slow") as thread:
        host, _, port = thread.address.partition(":")
        assert "slow" in {each.name for each in threading.enumerate()}
    assert "slow" not in {each.name for each in threading.enumerate()}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=WAIT_S)


def test_a_running_answer_may_finish_when_closing_begins(slow: Slow) -> None:
    with running_application(config(slow.app, drain_s=WAIT_S), service="slow") as thread:
        connection, response = ask(thread)
        assert response.read(6) == b"first "
        thread.begin_close()
        slow.may_finish.set()
        assert response.read() == b"last"
        connection.close()
    assert not slow.was_cancelled.is_set()


def test_an_answer_that_does_not_finish_is_cancelled_after_the_drain(slow: Slow) -> None:
    with running_application(config(slow.app, drain_s=0), service="slow") as thread:
        connection, response = ask(thread)
        assert response.read(6) == b"first "
    assert slow.was_cancelled.wait(WAIT_S)
    connection.close()


def test_an_application_that_does_not_start_is_noticed() -> None:
    async def failing(scope, receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "no"})

    application = running_application(config(failing), service="failing")
    with pytest.raises(ServerError, match="the failing service ended by itself"), application:
        pytest.fail("it started")


def test_an_application_that_ends_is_noticed(slow: Slow) -> None:
    with running_application(config(slow.app), service="slow") as thread:
        thread.check_alive()
        thread.close()
        with pytest.raises(ServerError, match="the slow service ended by itself"):
            thread.check_alive()


def test_a_port_in_use_is_refused(slow: Slow) -> None:
    with socket.create_server((HOST, 0)) as other:
        taken = config(slow.app, port=other.getsockname()[1])
        with pytest.raises(UserError, match="the openai service can't listen on"):
            AsgiThread(taken, service="openai")
