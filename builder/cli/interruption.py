"""Lets a command clean up when it is told to stop: once, and in peace."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def stop_signals_interrupt() -> Iterator[None]:
    """Let SIGTERM (a CI job that is cancelled) and SIGHUP end the body like Ctrl-C.

    Their default ends the process at once, and half-written folders would stay. So would they if a second signal
    cut the clean-up short: the first one interrupts the body, and all others are in vain until it has ended. What
    whoever started the process had it ignore (nohup does that with SIGHUP) stays ignored.
    """
    is_stopping = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal is_stopping
        del number, frame
        if not is_stopping:
            is_stopping = True
            raise KeyboardInterrupt

    heeded = [number for number in SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
