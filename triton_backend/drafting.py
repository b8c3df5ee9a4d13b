"""Drafts tokens by prompt lookup: what followed the last few tokens when they last stood in prompt or answer.

A draft is a guess that costs a logit row. Whether it holds is found out by drawing each token as if it had not been
guessed, so it never changes an answer. A drafter whose guesses fail rests for a while.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

LONGEST = 3
SHORTEST = 2
"""Tokens that must stand in both places. A single one says too little of what follows."""
WINDOW = 32
"""Drafted tokens after which a drafter judges itself."""
LEAST_ACCEPTED = 8
"""Of a window: with fewer, a row costs more than it brings."""
REST = 64
"""Tokens for which it does not draft after a bad window."""


_ID_BITS = 32


class PromptRuns:
    """What stood last behind each run of a prompt: made once, read by all answers, and never changed.

    Sorted arrays: of 32,000 tokens they take 1 MB and 10 ms, where a dictionary would take 13 MB and 70 ms.
    """

    def __init__(self, token_ids: Sequence[int]) -> None:
        """Take the runs that a further token of the prompt follows."""
        self.num_tokens = len(token_ids)
        ids = np.array(token_ids, np.int64)
        pairs = ids[:-2] << _ID_BITS | ids[1:-1]
        self._pairs, self._places = _latest(pairs, SHORTEST)
        # A run of three is the rank of its first two and the third.
        ranks = np.searchsorted(self._pairs, pairs[:-1])
        self._triples, self._places_of_triples = _latest(ranks << _ID_BITS | ids[2:-1], LONGEST)

    def find(self, run: tuple[int, ...]) -> int | None:
        """Give the place of the token that followed the latest occurrence of a run; None if nothing did."""
        first, second, *third = run
        rank = _rank(self._pairs, first << _ID_BITS | second)
        if rank is None or not third:
            return None if rank is None else int(self._places[rank])
        rank = _rank(self._triples, rank << _ID_BITS | third[0])
        return None if rank is None else int(self._places_of_triples[rank])


def _latest(keys: Int64, length: int) -> tuple[Int64, Int64]:
    """Sort the keys of all runs of a length, each once; give with each the place behind its last occurrence."""
    distinct, from_end = np.unique(keys[::-1], return_index=True)
    return distinct, len(keys) - 1 - from_end + length


def _rank(keys: Int64, key: int) -> int | None:
    rank = int(np.searchsorted(keys, key))
    return rank if rank < len(keys) and keys[rank] == key else None


NO_RUNS = PromptRuns(())


class Drafter:
    """Drafts for one answer. It sees each token of it once, so a step costs the same however long the text is."""

    def __init__(self, prompt: PromptRuns = NO_RUNS) -> None:
        """Begin the answer to a prompt."""
        self._prompt = prompt
        self._follows: dict[tuple[int, ...], int] = {}
        """Place of the token after the latest occurrence of a run of ids, where that is behind the prompt."""
        self._num_seen = max(prompt.num_tokens, SHORTEST)
        self._proposed = 0
        self._accepted = 0
        self._rests_until = 0

    def propose(self, token_ids: Sequence[int], most: int) -> tuple[int, ...]:
        """Guess up to `most` tokens after `token_ids`, the known ones; none where nothing like them stood before."""
        if most <= 0 or len(token_ids) < self._rests_until:
            return ()
        self._see(token_ids)
        for length in range(LONGEST, SHORTEST - 1, -1):
            place = self._place_after(tuple(token_ids[-length:]))
            if place is not None:
                return tuple(token_ids[place : place + most])
        return ()

    def judge(self, proposed: int, accepted: int, *, num_known: int) -> None:
        """Take note of what became of a draft, after which the answer has `num_known` tokens."""
        self._proposed += proposed
        self._accepted += accepted
        if self._proposed < WINDOW:
            return
        if self._accepted * WINDOW < LEAST_ACCEPTED * self._proposed:
            self._rests_until = num_known + REST
        self._proposed = self._accepted = 0

    def _see(self, token_ids: Sequence[int]) -> None:
        """Remember what follows each run, up to the last known token, which nothing follows yet."""
        for place in range(self._num_seen, len(token_ids)):
            for length in range(SHORTEST, min(LONGEST, place) + 1):
                self._follows[tuple(token_ids[place - length : place])] = place
        self._num_seen = max(self._num_seen, len(token_ids))

    def _place_after(self, run: tuple[int, ...]) -> int | None:
        """Give the place of what followed a run last; what is in the answer came after all that is in the prompt."""
        if len(run) < SHORTEST:
            return None
        place = self._follows.get(run)
        return self._prompt.find(run) if place is None else place
