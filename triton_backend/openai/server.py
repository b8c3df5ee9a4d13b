"""How the application is run: uvicorn on one socket, with nothing of requests in its log."""

import uvicorn

from triton_backend.openai.app import create_app
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
    return uvicorn.Config(
        create_app(settings),
        host=host,
        port=port,
        http="h11",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=drain_s,
    )
