"""llama.cpp's own tokenizer, for comparison: its server loads a GGUF file and answers /tokenize."""

import http.client
import json
import socket
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import xllamacpp


class LlamaCpp:
    """A running llama.cpp with one model."""

    def __init__(self, gguf: Path) -> None:
        params = xllamacpp.CommonParams()
        params.model.path = str(gguf)
        params.n_ctx = 64
        params.n_parallel = 1
        params.warmup = False
        params.verbosity = -1
        params.port = _free_port()
        self._server = xllamacpp.Server(params)
        address = urlsplit(self._server.listening_address)
        self._connection = http.client.HTTPConnection(address.hostname or "", address.port)

    def __enter__(self) -> "LlamaCpp":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        del self._server

    def encode(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Give the ids of a text; `add_special` adds begin and end tokens."""
        body = {"content": text, "parse_special": parse_special, "add_special": add_special}
        self._connection.request("POST", "/tokenize", json.dumps(body), {"Content-Type": "application/json"})
        ids: list[int] = json.loads(self._connection.getresponse().read())["tokens"]
        return ids


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
