"""What happens to cached blocks, as a numbered stream that a router can follow.

Everything is drained in the engine's thread. A subscriber that drains too seldom is told how much it
missed; `BlockCache.snapshot` then tells it anew what is stored.
"""

from array import array
from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from triton_backend.kv.node import Node


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks of one domain can be found from now on: a run, each block the parent of the next."""

    keys: tuple[bytes, ...]
    parent: bytes | None
    """Key of the block before the run; None if the run begins a prompt."""
    token_ids: "array[int]" = field(repr=False)
    """`[len(keys) * block_size]`."""
    block_size: int
    domain: bytes = field(repr=False)
    """Whose blocks they are; `COMMON` for everybody's."""


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks can't be found any more."""

    keys: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Cleared:
    """Nothing can be found any more."""


Event = Stored | Removed | Cleared


class Drained(NamedTuple):
    """What a subscriber hears."""

    events: list[tuple[int, Event]]
    """(number, event); numbers rise by one."""
    num_missed: int
    """Events before them that were dropped before they were drained."""


class EventStream:
    """Keeps the newest events, up to `max_blocks` blocks in them."""

    def __init__(self, max_blocks: int = 65536) -> None:
        self._max_blocks = max_blocks
        self._events: deque[tuple[int, Event]] = deque()
        self._num_blocks = 0
        self.next_number = 0
        """Number of the next event; the first is 0."""

    def emit(self, event: Event) -> None:
        """Append an event; the oldest are dropped to stay within the bound, but never the newest."""
        self._events.append((self.next_number, event))
        self.next_number += 1
        self._num_blocks += _weight(event)
        while self._num_blocks > self._max_blocks and len(self._events) > 1:
            self._num_blocks -= _weight(self._events.popleft()[1])

    def subscribe(self) -> "Subscription":
        """Listen to all events from now on."""
        return Subscription(self)

    def since(self, number: int) -> Drained:
        """Give the events from `number` on, as far as they are kept."""
        oldest = self.next_number - len(self._events)
        first = max(number, oldest)
        return Drained(list(islice(self._events, first - oldest, None)), first - number)


class Subscription:
    """One listener's place in a stream."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._next = stream.next_number

    def drain(self) -> Drained:
        """Give the events since the last call."""
        drained = self._stream.since(self._next)
        self._next = self._stream.next_number
        return drained


def stored(run: list[Node], domain: bytes) -> Stored:
    """Describe a run of blocks, each the parent of the next."""
    token_ids = array("i")
    for node in run:
        token_ids.extend(node.token_ids)
    parent = run[0].parent
    return Stored(
        keys=tuple([node.key for node in run]),
        parent=None if parent is None else parent.key,
        token_ids=token_ids,
        block_size=len(run[0].token_ids),
        domain=domain,
    )


def _weight(event: Event) -> int:
    return 1 if isinstance(event, Cleared) else len(event.keys)
