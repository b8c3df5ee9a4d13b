"""What came of compiling constraints, kept for the next request with the same one; threads may share it."""

from collections import OrderedDict
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from triton_backend.constraint import Constraint

MAX_BYTES = 256 * 1024 * 1024
BYTES_PER_CHARACTER = 4
"""Of a constraint's text, which is kept too."""
BYTES_OF_ENTRY = 512

Compiled = TypeVar("Compiled")


class _Entry(NamedTuple, Generic[Compiled]):
    verdict: Compiled | str
    num_bytes: int


class Verdicts(Generic[Compiled]):
    """Compiled constraints, and refusals as text: as many as fit, those that were asked for last."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        """Begin empty."""
        self._max_bytes = max_bytes
        self._num_bytes = 0
        self._entries: OrderedDict[Constraint, _Entry[Compiled]] = OrderedDict()
        self._lock = Lock()

    def find(self, constraint: Constraint) -> Compiled | str | None:
        """Give what came of a constraint: compiled, or why it is refused; None if that is not known."""
        with self._lock:
            entry = self._entries.get(constraint)
            if entry is None:
                return None
            self._entries.move_to_end(constraint)
            return entry.verdict

    def keep(self, constraint: Constraint, verdict: Compiled | str, num_bytes: int) -> None:
        """Remember what came of a constraint, which takes `num_bytes` besides the texts."""
        num_characters = len(constraint.text) + (len(verdict) if isinstance(verdict, str) else 0)
        entry = _Entry(verdict, num_bytes + num_characters * BYTES_PER_CHARACTER + BYTES_OF_ENTRY)
        with self._lock:
            self._forget(constraint)
            self._entries[constraint] = entry
            self._num_bytes += entry.num_bytes
            while self._num_bytes > self._max_bytes:
                self._forget(next(iter(self._entries)))

    def _forget(self, constraint: Constraint) -> None:
        entry = self._entries.pop(constraint, None)
        if entry is not None:
            self._num_bytes -= entry.num_bytes
