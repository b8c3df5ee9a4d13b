"""What stands before every route: keys are checked here, and what nobody foresaw becomes an error object.

Requests that pass have in their state the `tenant` whom they come from.
"""

import asyncio
import hashlib
import hmac
import logging
import traceback
from collections.abc import Iterable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from triton_backend.openai.errors import ApiError, internal, unavailable
from triton_backend.tenancy import ANONYMOUS

OPEN_PATHS = frozenset({"/health/live"})
"""Paths that need no key, so that a supervisor without one can see that the process is there."""

logger = logging.getLogger(__name__)


class Gate:
    """Refuses requests without a valid key, and answers for an application that raises."""

    def __init__(self, app: ASGIApp, api_keys: Iterable[str]) -> None:
        """Stand before `app`; without keys everyone may pass."""
        self._app = app
        # Digests have one length, so that comparing takes the same time for every key.
        self._digests = [_digest(b"Bearer " + key.encode()) for key in api_keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, or the lifespan of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif (tenant := self._tenant_of(scope)) is None:
            refusal = ApiError(
                401,
                "the API key is missing or wrong; send the header Authorization: Bearer KEY.",
                code="invalid_api_key",
                headers={"www-authenticate": "Bearer"},
            )
            await refusal.response()(scope, receive, send)
        else:
            scope.setdefault("state", {})["tenant"] = tenant
            await self._guarded(scope, receive, send)

    def _tenant_of(self, scope: Scope) -> str | None:
        """Name the caller, by the digest of its key; None where it may not pass."""
        if not self._digests or scope["path"] in OPEN_PATHS:
            return ANONYMOUS
        given = _digest(dict(scope["headers"]).get(b"authorization", b""))
        matches = [hmac.compare_digest(given, digest) for digest in self._digests]
        return given.hex() if any(matches) else None

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_started = False

        async def watched_send(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await self._app(scope, receive, watched_send)
        except asyncio.CancelledError:
            failure = unavailable()  # the server stops, and has waited for answers long enough
        except Exception as error:  # noqa: BLE001 - logged without its message, which may quote a prompt
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{place.filename}:{place.lineno}"
            logger.error("unforeseen %s at %s", type(error).__name__, where)  # noqa: TRY400
            failure = internal()
        else:
            return
        if not has_started:
            await failure.response()(scope, receive, send)


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
