"""HTTP/1.1 as uvicorn speaks it, with bounds: on open connections, and on the time that a request's head takes.

Whoever opens sockets and says nothing, or half a line, would otherwise use up the files that this process may open.
What is no HTTP gets an error object like any other mistake.
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from triton_backend.openai.connection import JSON
from triton_backend.openai.errors import ApiError, unavailable


class BoundedProtocol(H11Protocol):
    """One connection."""

    def __init__(self, *arguments: Any, max_connections: int, head_s: float, **named: Any) -> None:
        """Be one of at most `max_connections`, whose requests have `head_s` seconds for their heads."""
        super().__init__(*arguments, **named)
        self._max_connections = max_connections
        self._head_s = head_s
        self._head_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin, or refuse where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > self._max_connections:
            self._refuse(unavailable())
            return
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._head_came()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; a head that has begun must be whole in time."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._head_came()
        elif self._head_deadline is None:
            self._await_head()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self._head_came()
        self._refuse(ApiError(400, "the request is not valid HTTP.", code="invalid_http"))
        del msg

    def _await_head(self) -> None:
        self._head_deadline = self.loop.call_later(self._head_s, self._give_up)

    def _head_came(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None

    def _give_up(self) -> None:
        self._head_deadline = None
        text = "the head of the request did not come in time."
        self._refuse(ApiError(408, text, code="timeout"))

    def _refuse(self, error: ApiError) -> None:
        """Answer as well as the state of the connection allows, and close it."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            body = error.body()
            headers = {
                **error.headers,
                "content-type": JSON,
                "content-length": str(len(body)),
                "connection": "close",
            }
            response = h11.Response(status_code=error.status, headers=list(headers.items()))
            for event in (response, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()
