"""llama.cpp's own tokenizer, for comparison: its server loads a GGUF file and answers /tokenize.

It runs in a process of its own, because shutting a server down that has only just started hangs for ever.
Run as a program, this file is that process.
"""

import http.client
import json
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

HOST = "127.0.0.1"


class LlamaCpp:
    """A running llama.cpp with one model."""

    def __init__(self, gguf: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(gguf)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        address = urlsplit(self._process.stdout.readline().strip())
        assert address.hostname, f"llama.cpp does not load {gguf.name}"
        self._address = address.netloc

    def __enter__(self) -> "LlamaCpp":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def encode(self, text: str, *, parse_special: bool, add_special: bool = False) -> list[int]:
        """Give the ids of a text; `add_special` adds begin and end tokens."""
        body = {"content": text, "parse_special": parse_special, "add_special": add_special}
        # One connection a call: on a kept one, its server takes three times as long to answer.
        connection = http.client.HTTPConnection(self._address)
        connection.request(
            "POST", "/tokenize", json.dumps(body), {"Content-Type": "application/json"}
        )
        ids: list[int] = json.loads(connection.getresponse().read())["tokens"]
        connection.close()
        return ids


def serve(gguf: str) -> None:
    """Load a model, print the server's address, and wait to be killed or for the end of the input."""
    import xllamacpp  # noqa: PLC0415 (only this process needs it)

    params = xllamacpp.CommonParams()
    params.model.path = gguf
    params.n_ctx = 64
    params.n_parallel = 1
    params.warmup = False
    params.verbosity = -1
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        params.port = probe.getsockname()[1]
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 (the parent reads it)
    sys.stdin.read()


if __name__ == "__main__":
    serve(sys.argv[1])
