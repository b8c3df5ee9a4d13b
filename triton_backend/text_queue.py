"""Texts of requests that wait for work that may take long: so many and no more, and none for ever.

Prompts wait to be encoded. One thread takes the shortest of the short ones; another takes the oldest of all. So a short
prompt waits for other short ones at most, and a long one comes up in its turn however many short ones arrive.

Constraints wait to be compiled in a queue of their own, where one tenant after the other has a turn: however many one of
them sends, each other waits for no more than one of those. A thread per queue takes what is late.
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

Key = tuple[int, int]
"""The front's number, and the number that it gave the request."""

MAX_WAITING = 1024
MAX_OF_TENANT = 64
"""Constraints of one tenant. A hostile one takes half a second."""
MAX_CHARACTERS = 16 * 1024 * 1024
"""One more would wait for a minute: a thread encodes 270,000 characters a second (SmolLM2's tokenizer, one core)."""
SHORT_CHARACTERS = 32 * 1024
"""Encoded within about 0.1 s."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitingText:
    """A text in the queue."""

    num_characters: int
    """Of all texts of its request; or token ids."""
    work: Callable[[], None]
    """Does the work; it never raises."""
    give_up: Callable[[], None]
    """Does what is left to do when the deadline passes first; it never raises."""
    deadline_s: float | None = None
    """On the queue's clock."""
    tenant: str = ""
    """Whose turn it needs."""


class TextQueue:
    """The texts of all fronts of a host. Any thread may put and drop."""

    def __init__(
        self,
        *,
        max_waiting: int = MAX_WAITING,
        max_of_tenant: int = MAX_WAITING,
        max_characters: int = MAX_CHARACTERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin empty. An empty queue takes any text. `clock` gives seconds that never go back."""
        self._max_waiting = max_waiting
        self._max_of_tenant = max_of_tenant
        self._max_characters = max_characters
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[Key, WaitingText] = {}
        """In the order of their coming."""
        self._num_characters = 0
        """Of those that wait."""
        self._turns: Counter[str] = Counter()
        """Texts of each tenant that has any, the one whose turn it is first."""
        self._num_working = 0
        """Texts that a thread has taken and not finished."""

    def __len__(self) -> int:
        """Count the texts that are not done yet."""
        return len(self._waiting) + self._num_working

    def put(self, key: Key, text: WaitingText) -> str:
        """Let a text wait for its turn; give the reason if the queue is full, else nothing."""
        with self._changed:
            num_characters = self._num_characters + text.num_characters
            is_full = (
                len(self._waiting) >= self._max_waiting
                or self._turns[text.tenant] >= self._max_of_tenant
                or num_characters > self._max_characters
            )
            if self._waiting and is_full:
                return (
                    f"the queue is full: the texts of {len(self._waiting)} requests,"
                    f" {self._num_characters} characters, wait to be read; try again later."
                )
            self._waiting[key] = text
            self._turns[text.tenant] += 1
            self._num_characters = num_characters
            self._changed.notify_all()
        return ""

    def drop(self, key: Key) -> None:
        """Forget a text, unless a thread has taken it."""
        with self._changed:
            if key in self._waiting:
                self._take(key)

    def serve_oldest(self) -> None:
        """Wait for a text, and do the work of the one that has waited longest."""
        self._serve(lambda: next(iter(self._waiting), None))

    def serve_shortest(self) -> None:
        """Wait for a short text, and do the work of the shortest."""
        self._serve(self._shortest)

    def serve_in_turn(self) -> None:
        """Wait for a text, and do the work of the oldest of the tenant whose turn it is."""
        self._serve(self._next_in_turn)

    def give_up_late(self) -> None:
        """Wait until the deadline of a text that waits has passed, and give up all that are late."""
        with self._changed:
            while (left_s := self._time_left()) is None or left_s > 0:
                self._changed.wait(left_s)
            now = self._clock()
            late = [
                self._take(key) for key, each in [*self._waiting.items()] if _is_late(each, now)
            ]
        for text in late:
            text.give_up()

    def _time_left(self) -> float | None:
        """Give the seconds to the first deadline; None if there is none."""
        deadlines = [each.deadline_s for each in self._waiting.values()]
        first = min((each for each in deadlines if each is not None), default=None)
        return None if first is None else min(first - self._clock(), threading.TIMEOUT_MAX)

    def _shortest(self) -> Key | None:
        key = min(self._waiting, key=lambda each: self._waiting[each].num_characters, default=None)
        is_short = key is not None and self._waiting[key].num_characters <= SHORT_CHARACTERS
        return key if is_short else None

    def _next_in_turn(self) -> Key | None:
        tenant = next(iter(self._turns), None)
        return next((key for key, each in self._waiting.items() if each.tenant == tenant), None)

    def _serve(self, choose: Callable[[], Key | None]) -> None:
        with self._changed:
            while (key := choose()) is None:
                self._changed.wait()
            text = self._take(key)
            self._num_working += 1
            if num_left := self._turns.pop(text.tenant, 0):
                self._turns[text.tenant] = num_left  # behind all others
        text.work()
        with self._changed:
            self._num_working -= 1

    def _take(self, key: Key) -> WaitingText:
        text = self._waiting.pop(key)
        self._num_characters -= text.num_characters
        self._turns[text.tenant] -= 1
        if not self._turns[text.tenant]:
            del self._turns[text.tenant]
        return text


def _is_late(text: WaitingText, now_s: float) -> bool:
    return text.deadline_s is not None and text.deadline_s <= now_s
