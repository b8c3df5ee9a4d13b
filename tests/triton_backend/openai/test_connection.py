"""Work that ends when the client goes away."""

import asyncio
from typing import Any

import pytest
from starlette.requests import ClientDisconnect
from starlette.types import Message

from triton_backend.openai.connection import while_connected


class Client:
    """The receive channel of a client that is there until `leave`."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Message] = asyncio.Queue()
        self.pending = 0

    async def receive(self) -> Message:
        self.pending += 1
        try:
            return await self.messages.get()
        finally:
            self.pending -= 1

    def leave(self) -> None:
        self.messages.put_nowait({"type": "http.disconnect"})


async def forever(log: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        log.append("ended")


def test_the_result_is_given_and_nobody_listens_on() -> None:
    async def work() -> int:
        await asyncio.sleep(0)
        return 7

    async def scenario() -> tuple[int, int]:
        client = Client()
        return await while_connected(client.receive, work()), client.pending

    assert asyncio.run(scenario()) == (7, 0)


def test_an_error_of_the_work_is_raised() -> None:
    async def work() -> None:
        raise ValueError("as it is")

    with pytest.raises(ValueError, match="as it is"):
        asyncio.run(while_connected(Client().receive, work()))


def test_the_work_has_ended_when_the_departure_is_told() -> None:
    log: list[str] = []

    async def scenario() -> None:
        client = Client()
        client.messages.put_nowait({"type": "http.request", "body": b"", "more_body": False})
        asyncio.get_running_loop().call_soon(client.leave)
        with pytest.raises(ClientDisconnect):
            await while_connected(client.receive, forever(log))
        assert log == ["ended"]

    asyncio.run(scenario())


def test_work_that_is_done_counts_even_if_the_client_leaves_at_once() -> None:
    async def scenario() -> Any:
        client = Client()

        async def work() -> int:
            client.leave()
            return 7

        return await while_connected(client.receive, work())

    assert asyncio.run(scenario()) == 7


def test_cancelling_from_outside_ends_the_work_and_the_listening() -> None:
    log: list[str] = []

    async def scenario() -> int:
        client = Client()
        task = asyncio.create_task(while_connected(client.receive, forever(log)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return client.pending

    assert asyncio.run(scenario()) == 0
    assert log == ["ended"]
