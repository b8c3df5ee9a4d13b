"""The one thread that owns the engine: commands come in by a queue, deltas go out after each step.

Commands are obeyed between steps, so a cancel frees its blocks within one step. Without work the thread waits for
the next command and costs nothing.
"""

import logging
import queue
import traceback
from collections.abc import Callable
from typing import Protocol

from builder.errors import RequestError
from triton_backend.engine import Engine
from triton_backend.messages import Pong, RefusalKind
from triton_backend.request import Delta, Request

logger = logging.getLogger(__name__)

MAX_WAITING = 1024
"""Requests that may wait for the engine; one more would wait for minutes, and hold its prompt meanwhile."""


class Listener(Protocol):
    """Hears what becomes of requests, on the worker's thread; it must not block."""

    def hear(self, deltas: list[Delta]) -> None:
        """Take the news of one step, at most one delta per request."""
        ...

    def refuse(self, request_id: str, kind: RefusalKind, message: str) -> None:
        """Take note that a request gets no token, and why."""
        ...


class Worker:
    """Runs an engine. `run` belongs to one thread; everything else may be called from any."""

    def __init__(
        self, engine: Engine, listener: Listener, *, max_waiting: int = MAX_WAITING
    ) -> None:
        self._engine = engine
        self._listener = listener
        self._max_waiting = max_waiting
        self._commands: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._is_stopping = False
        self._num_steps = 0
        self._num_generated_tokens = 0

    def submit(self, request: Request) -> None:
        """Serve a request; its deltas, or that it is refused, go to the listener."""
        self._commands.put(lambda: self._submit(request))

    def cancel(self, request_id: str) -> None:
        """End a request; the listener hears its last delta, unless it is over already."""
        self._commands.put(lambda: self._cancel(request_id))

    def inquire(self, answer: Callable[[Pong], None]) -> None:
        """Call `answer` between two steps, on the worker's thread."""
        self._commands.put(lambda: answer(self._pong()))

    def stop(self) -> None:
        """Let `run` end after the step it is in. Requests that are left get no further news."""
        self._commands.put(self._stop)

    def run(self) -> None:
        """Serve until `stop`."""
        while True:
            self._obey()
            if self._is_stopping:
                return
            if self._engine.has_work:
                self._step()

    def _step(self) -> None:
        deltas = self._engine.step()
        self._num_steps += 1
        self._num_generated_tokens += sum(len(delta.token_ids) for delta in deltas)
        if deltas:
            self._listener.hear(deltas)

    def _obey(self) -> None:
        """Carry out the commands that are there; wait for one only if there is nothing else to do."""
        try:
            self._commands.get(block=not self._engine.has_work)()
            while not self._is_stopping:
                self._commands.get_nowait()()
        except queue.Empty:
            return

    def _submit(self, request: Request) -> None:
        refuse = self._listener.refuse
        num_waiting = len(self._engine.scheduler.waiting)
        if num_waiting >= self._max_waiting:
            message = f"the queue is full: {num_waiting} requests wait already; try again later."
            refuse(request.request_id, RefusalKind.UNAVAILABLE, message)
            return
        try:
            self._engine.submit(request)
        except RequestError as error:
            refuse(request.request_id, RefusalKind.INVALID, str(error))
        except Exception as error:  # noqa: BLE001 - one request fails, and others go on
            _log(error)
            message = f"admitting the request failed with {type(error).__name__}."
            refuse(request.request_id, RefusalKind.INTERNAL, message)

    def _cancel(self, request_id: str) -> None:
        delta = self._engine.cancel(request_id)
        if delta is not None:
            self._listener.hear([delta])

    def _stop(self) -> None:
        self._is_stopping = True

    def _pong(self) -> Pong:
        scheduler = self._engine.scheduler
        return Pong(
            num_running=len(scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_blocks=scheduler.pool.num_blocks - 1,
            num_used_blocks=scheduler.pool.num_used,
            num_steps=self._num_steps,
            num_generated_tokens=self._num_generated_tokens,
        )


def _log(failure: Exception) -> None:
    """Log where admitting failed, without the message: it may quote a prompt."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    logger.error("a request could not be admitted: %s\n%s", type(failure).__name__, where)
