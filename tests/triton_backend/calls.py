"""A stand-in for a request of Triton's: what it asks, and all that it is told."""

import threading
from collections.abc import Mapping
from typing import Any

from triton_backend.faces.forerun import FORERUN
from triton_backend.protocol import Array, strings
from triton_backend.responder import Failure

PATIENCE_S = 60
OUTPUTS = frozenset(tensor.name for tensor in FORERUN.outputs) - {"num_cached_tokens"}


class FakeCall:
    """A `Call` that keeps its responses and can be waited on."""

    def __init__(self, *, timeout_s: float | None = None, **tensors: Array) -> None:
        self.tensors: Mapping[str, Array] = tensors or {"text": strings(b"hi")}
        self.parameters: Mapping[str, object] = {}
        self.request_id = ""
        self.wanted = OUTPUTS
        self.timeout_s = timeout_s
        self.has_left = False
        self.responses: list[dict[str, list[Any]]] = []
        self.failure: Failure | None = None
        self.num_ends = 0
        self.gate: threading.Event | None = None
        """Holds up each response until it is set."""
        self.is_held_up = threading.Event()
        self._changed = threading.Condition()

    def is_cancelled(self) -> bool:
        return self.has_left

    def respond(self, tensors: Mapping[str, Array], *, is_last: bool) -> None:
        if self.gate is not None:
            self.is_held_up.set()
            assert self.gate.wait(PATIENCE_S)
        with self._changed:
            assert self.num_ends == 0, "a response after the last"
            self.responses.append({name: array.tolist() for name, array in tensors.items()})
            self.num_ends += is_last
            self._changed.notify_all()

    def fail(self, failure: Failure) -> None:
        with self._changed:
            assert self.num_ends == 0, "a failure after the last response"
            self.failure = failure
            self.num_ends += 1
            self._changed.notify_all()

    def await_responses(self, count: int = 1) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.responses) >= count, PATIENCE_S)

    def await_end(self) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_ends > 0, PATIENCE_S)

    @property
    def text(self) -> str:
        return b"".join(response["text"][0] for response in self.responses).decode()
