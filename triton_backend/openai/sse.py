"""Server-sent events, as OpenAI's clients read them: one JSON object an event, then [DONE]."""

from typing import Any

import msgspec

HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # Proxies of the nginx family would gather events otherwise.
    (b"x-accel-buffering", b"no"),
)
DONE = b"data: [DONE]\n\n"
"""Ends a stream that succeeded, and no other."""

_encoder = msgspec.json.Encoder()


def event(content: Any) -> bytes:
    """Encode one event. JSON has no line ends but escaped ones, so it fits on the one line of `data`."""
    return framed(_encoder.encode(content))


def framed(json: bytes) -> bytes:
    """Make one event of a JSON text."""
    return b"data: " + json + b"\n\n"
