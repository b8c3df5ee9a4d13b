"""The client's end of an HTTP request: its body, and whether it is still there."""

import asyncio
from collections.abc import Coroutine
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from triton_backend.openai.errors import ApiError

Result = TypeVar("Result")

JSON = "application/json"


async def read_json_body(request: Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """Read the body of a request whose content is JSON.

    Raises:
        ApiError: it is not declared as JSON, larger than `max_bytes`, or not there in time.
        ClientDisconnect: the client went away.
    """
    # Web pages of others can't send this type without asking first, so they can't use a local server.
    declared = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if declared != JSON:
        text = f"the content-type must be {JSON}."
        raise ApiError(415, text, code="unsupported_media_type", headers={"accept": JSON})
    try:
        async with asyncio.timeout(timeout_s):
            return await _read(request, max_bytes)
    except TimeoutError:
        text = f"the body was not there after {timeout_s:g} s."
        raise ApiError(408, text, code="timeout", headers={"connection": "close"}) from None


async def _read(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                text = f"the body has more than {max_bytes} bytes; send less."
                raise ApiError(413, text, code="request_too_large")
    return bytes(body)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, Result]) -> Result:
    """Do `work`, and cancel it as soon as the client goes away. The body must have been read.

    Raises:
        ClientDisconnect: the client went away first; the work has ended by then.
    """
    working = asyncio.create_task(work)
    leaving = asyncio.create_task(_departure(receive))
    tasks = {working, leaving}
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
