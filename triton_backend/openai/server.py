"""How the application is run: uvicorn on one socket, with nothing of requests in its log."""

import asyncio
import resource
from functools import partial
from typing import cast

import uvicorn

from triton_backend.openai.app import create_app
from triton_backend.openai.http_protocol import BoundedProtocol
from triton_backend.openai.settings import ShimSettings

KEEP_ALIVE_S = 75
"""Longer than clients keep idle connections, so that they don't send into one that is just closing."""


def server_config(
    settings: ShimSettings, *, port: int, host: str = "127.0.0.1", drain_s: int = 10
) -> uvicorn.Config:
    """Configure a server for the shim; port 0 takes a free one.

    On shutdown running answers have `drain_s` to finish.

    Raises:
        UserError: a model's artifact can't be used.
    """
    protocol = partial(
        BoundedProtocol,
        max_connections=min(settings.max_connections, _max_files() // 2),
        head_s=settings.head_s,
    )
    return uvicorn.Config(
        create_app(settings),
        host=host,
        port=port,
        http=cast("type[asyncio.Protocol]", protocol),  # it is only called
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )


def _max_files() -> int:
    """Give the files that this process may open; half of them are for all else."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
