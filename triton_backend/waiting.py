"""Those who wait, hold no blocks, and are admitted next one after the other.

Whoever ran before goes first, oldest first; then those who never did, in the order of a policy.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from triton_backend.policies.policy import Policy, View
from triton_backend.sequence import Sequence


class _Entry(NamedTuple):
    key: float
    number: int
    """Order of arrival; no two are equal, so sequences are never compared."""
    sequence: Sequence


class Waiting:
    """The queue of a scheduler."""

    def __init__(self, policy: Policy, view: View) -> None:
        """Start empty; the policy decides by `view`, which may change at any time."""
        self._policy = policy
        self._view = view
        self._preempted: deque[Sequence] = deque()
        self._new: list[_Entry] = []
        """By key and arrival as of when they were added."""
        self._num_added = 0

    def __len__(self) -> int:
        """Count them."""
        return len(self._preempted) + len(self._new)

    def __iter__(self) -> Iterator[Sequence]:
        """Go through them: those who ran, then the others as they were ordered on arrival."""
        yield from self._preempted
        for entry in self._new:
            yield entry.sequence

    def add(self, sequence: Sequence) -> None:
        """Take a sequence that never ran."""
        self._num_added += 1
        insort(self._new, _Entry(self._key(sequence), self._num_added, sequence))

    def put_back(self, sequence: Sequence) -> None:
        """Take a sequence that lost its blocks; it is older than all that did before."""
        self._preempted.appendleft(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Drop one that is among them."""
        if sequence.num_admissions:
            self._preempted.remove(sequence)
        else:
            place = next(i for i, entry in enumerate(self._new) if entry.sequence is sequence)
            del self._new[place]

    def next(self) -> Sequence:
        """Give the one to admit next; there must be one."""
        if self._preempted:
            return self._preempted[0]
        if self._policy.is_steady:
            return self._new[0].sequence
        return min(self._new, key=lambda entry: (self._key(entry.sequence), entry.number)).sequence

    def _key(self, sequence: Sequence) -> float:
        return self._policy.key(sequence, self._view)
