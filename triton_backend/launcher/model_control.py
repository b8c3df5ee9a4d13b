"""Triton's API for loading and unloading models, behind a key that only we know, and its readiness."""

import http.client

from builder.errors import ServerError

KEY_NAME = "forerun-control-key"
READY_TIMEOUT_S = 5.0
LOAD_TIMEOUT_S = 120.0
"""For one load: a stub that can't start would keep it for ever."""


class ModelControl:
    """Speaks HTTP to one server."""

    def __init__(self, host: str, port: int, *, key: str) -> None:
        """Remember where the server is; no connection is kept."""
        self._host = host
        self._port = port
        self._key = key

    @property
    def restriction(self) -> str:
        """The key as Triton's options `--http-restricted-api` and `--grpc-restricted-protocol` take it."""
        return f"{KEY_NAME}={self._key}"

    @property
    def grpc_headers(self) -> dict[str, str]:
        """What a gRPC client sends along to be let in."""
        return {f"triton-grpc-protocol-{KEY_NAME}": self._key}

    def is_ready(self) -> bool:
        """Whether the server answers and every model is ready."""
        try:
            return self._call("GET", "/v2/health/ready", READY_TIMEOUT_S)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def load(self, model: str) -> None:
        """Load a model, and wait until it is ready.

        Raises:
            ServerError: it can't be loaded; Triton's reason is in the notes.
        """
        self._change("load", model)

    def unload(self, model: str) -> None:
        """Stop taking requests for a model; it goes when those that run have ended.

        Raises:
            ServerError: it can't be unloaded; Triton's reason is in the notes.
        """
        self._change("unload", model)

    def _change(self, verb: str, model: str) -> None:
        path = f"/v2/repository/models/{model}/{verb}"
        try:
            status, body = self._call("POST", path, LOAD_TIMEOUT_S)
        except (OSError, http.client.HTTPException) as error:
            raise ServerError(f"Triton did not {verb} {model}: {type(error).__name__}") from error
        if status != 200:
            failure = ServerError(f"Triton did not {verb} {model}; its log says why")
            failure.add_note(body.decode("utf-8", "replace"))
            raise failure

    def _call(self, method: str, path: str, timeout_s: float) -> tuple[int, bytes]:
        """Give status and body of one call."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        try:
            connection.request(method, path, headers={KEY_NAME: self._key})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
