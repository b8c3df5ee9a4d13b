"""Whose turn it is to use an engine: one thread's at a time."""

import threading

from builder.errors import EngineError


class Turn:
    """`with turn:` refuses a second thread at once; `with turn.lock:` waits until the first is done.

    The lock knows its thread: an interrupt that comes between taking it and the block leaves it to that thread, which can
    still close the engine.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        if not self.lock.acquire(blocking=False):
            raise EngineError("the engine is running a step; an executor is used by one thread")

    def __exit__(self, *_: object) -> None:
        self.lock.release()
