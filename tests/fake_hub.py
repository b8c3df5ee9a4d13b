"""A model hub on the loopback interface: as much of the Hugging Face API as a snapshot download uses."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


@dataclass(slots=True)
class FakeHub:
    """One repository at one commit, and what was asked of it."""

    repository: str
    commit: str
    files: dict[str, bytes]
    revisions: tuple[str, ...] = ("main",)
    is_gated: bool = False
    status: int = 200
    """What everything is answered with; 200 for the truth."""
    fetched: list[str] = field(default_factory=list)
    """Files whose content was sent, in order."""
    url: str = ""

    def answer(self, method: str, path: str) -> tuple[int, dict[str, str], bytes]:
        """Give status, headers and body."""
        if self.status != 200:
            return self.status, {}, b'{"error": "out of order"}'
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        if parts[:2] == ["api", "models"] and "/".join(parts[2:4]) == self.repository:
            return self._api(parts[4:])
        if "/".join(parts[:2]) == self.repository and parts[2:3] == ["resolve"]:
            return self._file(method, parts[3], "/".join(parts[4:]))
        return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _api(self, parts: list[str]) -> tuple[int, dict[str, str], bytes]:
        kind, revision = parts[0], parts[1]
        if revision not in (*self.revisions, self.commit):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        if kind == "revision":
            return _json({"id": self.repository, "sha": self.commit, "siblings": []})
        return _json([_entry(name, content) for name, content in self.files.items()])

    def _file(self, method: str, revision: str, name: str) -> tuple[int, dict[str, str], bytes]:
        if self.is_gated:
            return 403, {"X-Error-Code": "GatedRepo", "X-Repo-Commit": self.commit}, b"{}"
        if revision != self.commit or name not in self.files:
            return 404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": self.commit}, b"{}"
        content = self.files[name]
        if method == "GET":
            self.fetched.append(name)
        headers = {"X-Repo-Commit": self.commit, "ETag": f'"{_blob_id(content)}"'}
        return 200, headers, content


@contextmanager
def serve(hub: FakeHub) -> Iterator[FakeHub]:
    """Serve `hub` until the block ends; its `url` is then known."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _handler(hub: FakeHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply("GET")

        def do_HEAD(self) -> None:
            self._reply("HEAD")

        def _reply(self, method: str) -> None:
            status, headers, body = hub.answer(method, self.path)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if method == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler


def _json(content: Any) -> tuple[int, dict[str, str], bytes]:
    return 200, {"Content-Type": "application/json"}, json.dumps(content).encode()


def _entry(name: str, content: bytes) -> dict[str, Any]:
    return {"type": "file", "path": name, "size": len(content), "oid": _blob_id(content)}


def _blob_id(content: bytes) -> str:
    return hashlib.sha1(content, usedforsecurity=False).hexdigest()
