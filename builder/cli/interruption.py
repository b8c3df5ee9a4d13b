"""Lets a command clean up when it is told to stop by other means than Ctrl-C."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Let SIGTERM (a CI job that is cancelled) and SIGHUP end the body like Ctrl-C.

    Their default ends the process at once, and half-written folders would stay. What whoever started the process
    had it ignore (nohup does that with SIGHUP) stays ignored.
    """
    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, _interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise KeyboardInterrupt
