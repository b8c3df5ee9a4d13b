"""Reads the events of a streamed answer, and nothing that is not one."""

import json
from typing import Any

import httpx


def events_of(response: httpx.Response) -> list[str]:
    """Cut a body into the data of its events, which is all that it may hold."""
    *events, rest = response.text.split("\n\n")
    assert rest == ""
    assert all(event.startswith("data: ") and "\n" not in event for event in events)
    return [event.removeprefix("data: ") for event in events]


def chunks_of(response: httpx.Response) -> list[Any]:
    """Give the chunks of a stream that succeeded."""
    *chunks, done = events_of(response)
    assert done == "[DONE]"
    return [json.loads(chunk) for chunk in chunks]
