"""Prompts that wait to be encoded: so many and no more, and short ones do not wait for long ones.

Three threads serve it. One takes the shortest of the short prompts; another takes the oldest of all. So a short prompt
waits for other short ones at most, and a long one comes up in its turn however many short ones arrive. The third
takes those whose deadline has passed.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

Key = tuple[int, int]
"""The front's number, and the number that it gave the request."""

MAX_PROMPTS = 1024
MAX_CHARACTERS = 16 * 1024 * 1024
"""One more would wait for a minute: a thread encodes 270,000 characters a second (SmolLM2's tokenizer, one core)."""
SHORT_CHARACTERS = 32 * 1024
"""Encoded within about 0.1 s."""


@dataclass(frozen=True, slots=True, eq=False)
class WaitingPrompt:
    """A prompt in the queue."""

    num_characters: int
    """Or token ids."""
    encode: Callable[[], None]
    """Does the work; it never raises."""
    give_up: Callable[[], None]
    """Does what is left to do when the deadline passes first; it never raises."""
    deadline_s: float | None = None
    """On the queue's clock."""


class PromptQueue:
    """The prompts of all fronts of a host. Any thread may put and drop."""

    def __init__(
        self,
        *,
        max_prompts: int = MAX_PROMPTS,
        max_characters: int = MAX_CHARACTERS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin empty. An empty queue takes any prompt. `clock` gives seconds that never go back."""
        self._max_prompts = max_prompts
        self._max_characters = max_characters
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: dict[Key, WaitingPrompt] = {}
        """In the order of their coming."""
        self._num_characters = 0
        """Of those that wait."""
        self._num_encoding = 0
        """Prompts that a thread has taken and not finished."""

    def __len__(self) -> int:
        """Count the prompts that are not encoded yet."""
        return len(self._waiting) + self._num_encoding

    def put(self, key: Key, prompt: WaitingPrompt) -> str:
        """Let a prompt wait for its turn; give the reason if the queue is full, else nothing."""
        with self._changed:
            num_characters = self._num_characters + prompt.num_characters
            is_full = (
                len(self._waiting) >= self._max_prompts or num_characters > self._max_characters
            )
            if self._waiting and is_full:
                return (
                    f"the queue is full: {len(self._waiting)} prompts of {self._num_characters} characters "
                    "wait to be encoded; try again later."
                )
            self._waiting[key] = prompt
            self._num_characters = num_characters
            self._changed.notify_all()
        return ""

    def drop(self, key: Key) -> None:
        """Forget a prompt, unless a thread has taken it."""
        with self._changed:
            if key in self._waiting:
                self._take(key)

    def encode_oldest(self) -> None:
        """Wait for a prompt, and encode the one that has waited longest."""
        self._encode(lambda: next(iter(self._waiting), None))

    def encode_shortest(self) -> None:
        """Wait for a short prompt, and encode the shortest."""
        self._encode(self._shortest)

    def give_up_late(self) -> None:
        """Wait until the deadline of a prompt that waits has passed, and give up all that are late."""
        with self._changed:
            while (left_s := self._time_left()) is None or left_s > 0:
                self._changed.wait(left_s)
            now = self._clock()
            late = [
                self._take(key) for key, each in [*self._waiting.items()] if _is_late(each, now)
            ]
        for prompt in late:
            prompt.give_up()

    def _time_left(self) -> float | None:
        """Give the seconds to the first deadline; None if there is none."""
        deadlines = [each.deadline_s for each in self._waiting.values()]
        first = min((each for each in deadlines if each is not None), default=None)
        return None if first is None else min(first - self._clock(), threading.TIMEOUT_MAX)

    def _shortest(self) -> Key | None:
        key = min(self._waiting, key=lambda each: self._waiting[each].num_characters, default=None)
        is_short = key is not None and self._waiting[key].num_characters <= SHORT_CHARACTERS
        return key if is_short else None

    def _encode(self, choose: Callable[[], Key | None]) -> None:
        with self._changed:
            while (key := choose()) is None:
                self._changed.wait()
            prompt = self._take(key)
            self._num_encoding += 1
        prompt.encode()
        with self._changed:
            self._num_encoding -= 1

    def _take(self, key: Key) -> WaitingPrompt:
        prompt = self._waiting.pop(key)
        self._num_characters -= prompt.num_characters
        return prompt


def _is_late(prompt: WaitingPrompt, now_s: float) -> bool:
    return prompt.deadline_s is not None and prompt.deadline_s <= now_s
