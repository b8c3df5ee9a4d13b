"""Drafts tokens by prompt lookup: what followed the last few tokens when they last stood in prompt or answer.

A draft is a guess that costs a logit row. Whether it holds is found out by drawing each token as if it had not been
guessed, so it never changes an answer. A drafter whose guesses fail rests for a while.
"""

from collections.abc import Sequence

LONGEST = 3
SHORTEST = 2
"""Tokens that must stand in both places. A single one says too little of what follows."""
WINDOW = 32
"""Drafted tokens after which a drafter judges itself."""
LEAST_ACCEPTED = 8
"""Of a window: with fewer, a row costs more than it brings."""
REST = 64
"""Tokens for which it does not draft after a bad window."""


class Drafter:
    """Drafts for one answer. It sees each known token once, so a step costs the same however long the text is."""

    def __init__(self) -> None:
        self._follows: dict[tuple[int, ...], int] = {}
        """Place of the token after the latest occurrence of a run of ids."""
        self._num_seen = 0
        self._proposed = 0
        self._accepted = 0
        self._rests_until = 0

    def propose(self, token_ids: Sequence[int], most: int) -> tuple[int, ...]:
        """Guess up to `most` tokens after `token_ids`, the known ones; none where nothing like them stood before."""
        if most <= 0 or len(token_ids) < self._rests_until:
            return ()
        self._see(token_ids)
        for length in range(LONGEST, SHORTEST - 1, -1):
            place = self._follows.get(tuple(token_ids[-length:]))
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
        for place in range(max(self._num_seen, SHORTEST), len(token_ids)):
            for length in range(SHORTEST, min(LONGEST, place) + 1):
                self._follows[tuple(token_ids[place - length : place])] = place
        self._num_seen = len(token_ids)
