"""A host that says one thing, and where a front would look for it."""

import hashlib
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from builder.artifact.config import Limits
from tests.triton_backend.host_stage import PATIENCE_S
from triton_backend.attach import HostPlace
from triton_backend.link import Link
from triton_backend.messages import VERSION, FromFront, Hello
from triton_backend.rendezvous import claimed

DIGEST = hashlib.sha256(b"{}").hexdigest()
HELLO = Hello(VERSION, DIGEST, 50, Limits(8, 2, 8, 2, 9))


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def make_place(folder: Path) -> HostPlace:
    """A place with a manifest, where no host can be started."""
    manifest = folder / "artifact.json"
    manifest.write_text("{}")
    return HostPlace(folder / "here.sock", DIGEST, manifest, python("raise SystemExit(3)"))


class Speaker:
    """A host that says one thing to the first front that joins, and ends."""

    def __init__(self, path: Path, says: Any) -> None:
        self.heard: list[Any] = []
        self._stack = ExitStack()
        self._listener = self._stack.enter_context(claimed(path))
        self._thread = threading.Thread(target=self._speak, args=(says,))
        self._thread.start()

    def _speak(self, says: Any) -> None:
        assert self._listener is not None
        connection, _ = self._listener.accept()
        self._listener.close()
        link: Link[FromFront] = Link(connection, FromFront)
        self.heard.append(link.receive())
        if isinstance(says, bytes):
            connection.sendall(says)
        elif says is not None:
            link.send(says)
        link.close()

    def close(self) -> None:
        self._thread.join(PATIENCE_S)
        self._stack.close()
