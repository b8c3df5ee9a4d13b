"""The one thread that owns the engine: commands come in by a queue, deltas go out after each step.

Commands are obeyed between steps, so a cancel frees its blocks within one step. Without work the thread waits for
the next command, or until cached blocks have had their time, and costs nothing.
"""

import logging
import queue
from collections.abc import Callable
from threading import TIMEOUT_MAX
from typing import Protocol

from builder.errors import RequestError, UnavailableError
from triton_backend.engine import Engine
from triton_backend.failures import log_failure
from triton_backend.messages import Pong, RefusalKind
from triton_backend.reading import reading_of
from triton_backend.reasons import Refusal
from triton_backend.request import Delta, Request

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Hears what becomes of requests, on the worker's thread; it must not block."""

    def hear(self, deltas: list[Delta]) -> None:
        """Take the news of one step, at most one delta per answer."""
        ...

    def refuse(self, request_id: str, kind: RefusalKind, message: str) -> None:
        """Take note that a request gets no token, and why."""
        ...


class Worker:
    """Runs an engine. `run` belongs to one thread; everything else may be called from any."""

    def __init__(self, engine: Engine, listener: Listener) -> None:
        self._engine = engine
        self._listener = listener
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_stopping = False

    def submit(self, request: Request) -> None:
        """Serve a request; its deltas, or that it is refused, go to the listener."""
        self._commands.put(lambda: self._submit(request))

    def cancel(self, request_id: str) -> None:
        """End a request; the listener hears its last deltas, unless it is over already."""
        self._commands.put(lambda: self._cancel(request_id))

    def note_refusal(self, reason: Refusal) -> None:
        """Count a request that was refused on its way here."""
        metrics = self._engine.metrics
        self._commands.put(lambda: metrics.refused(reason))

    def inquire(self, answer: Callable[[Pong], None]) -> None:
        """Call `answer` between two steps, on the worker's thread."""
        engine = self._engine
        self._commands.put(lambda: answer(reading_of(engine.metrics, engine.scheduler)))

    def stop(self) -> None:
        """Let `run` end after the step it is in. Requests that are left get no further news."""
        self._commands.put(self._stop)

    def run(self) -> None:
        """Serve until `stop`."""
        while True:
            self._obey()
            if self._is_stopping:
                return
            if self._engine.rest_s == 0:
                self._step()

    def _step(self) -> None:
        deltas = self._engine.step()
        if deltas:
            self._listener.hear(deltas)

    def _obey(self) -> None:
        """Carry out the commands that are there; wait for one only as long as there is nothing else to do."""
        rest_s = self._engine.rest_s
        try:
            self._commands.get(timeout=None if rest_s is None else min(rest_s, TIMEOUT_MAX))()
            while not self._is_stopping:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _submit(self, request: Request) -> None:
        refuse = self._listener.refuse
        try:
            self._engine.submit(request)
        except UnavailableError as error:
            refuse(request.request_id, RefusalKind.UNAVAILABLE, str(error))
        except RequestError as error:
            refuse(request.request_id, RefusalKind.INVALID, str(error))
        except Exception as error:  # noqa: BLE001 - one request fails, and others go on
            log_failure(logger, "a request could not be admitted", error)
            message = f"admitting the request failed with {type(error).__name__}."
            refuse(request.request_id, RefusalKind.INTERNAL, message)

    def _cancel(self, request_id: str) -> None:
        deltas = self._engine.cancel(request_id)
        if deltas:
            self._listener.hear(deltas)

    def _stop(self) -> None:
        self._is_stopping = True
