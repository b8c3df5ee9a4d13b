"""The sending end of a front's link: nobody who sends waits for a host that does not read.

A thread sends in order. What waits for it is counted; whoever puts something large there looks at the count first.
"""

import contextlib
import queue
import threading
from typing import Any

import msgspec

from triton_backend.link import Link, LinkError


class Outbox:
    """Messages on their way to a host. Any thread may send."""

    def __init__(self, link: Link[Any]) -> None:
        """Send over `link` until `end`, or until the link ends."""
        self._link = link
        self._frames: queue.SimpleQueue[bytearray | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._num_waiting_bytes = 0
        self._thread = threading.Thread(target=self._run, name="sender", daemon=True)
        self._thread.start()

    @property
    def num_waiting_bytes(self) -> int:
        """Bytes that are not sent yet."""
        return self._num_waiting_bytes

    def send(self, message: msgspec.Struct) -> None:
        """Let a message be sent after those before it; void if the link has ended.

        Raises:
            FrameSizeError: it is larger than a frame may be.
        """
        frame = self._link.pack(message)
        self._count(len(frame))
        self._frames.put(frame)

    def end(self) -> None:
        """Send what is there, and nothing after it."""
        self._frames.put(None)

    def wait_until_ended(self, timeout_s: float) -> None:
        """Wait until all is sent, after `end`, but no longer than a time."""
        self._thread.join(timeout_s)

    def _count(self, num_bytes: int) -> None:
        with self._lock:
            self._num_waiting_bytes += num_bytes

    def _run(self) -> None:
        with contextlib.suppress(LinkError):  # Whoever receives sees the end of the link too.
            while (frame := self._frames.get()) is not None:
                self._link.send_frame(frame)
                self._count(-len(frame))
