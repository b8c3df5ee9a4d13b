"""Which ids stand in the text of one answer, and how often in the answer itself: counted as it grows, for penalties.

A step costs by the ids that differ, not by the tokens that are known: only those that are new are read.
"""

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
INT32 = "i"
"""Tokens and blocks are kept as C integers: a step joins slices of them without touching each."""


def distinct(token_ids: Sequence[int]) -> Int32:
    """Give the ids that occur, each once, in ascending order."""
    return np.unique(np.array(token_ids, np.int32))


class Occurrences:
    """The ids of one answer, and those of its prompt, which its siblings share."""

    def __init__(self, prompt_ids: Int32, *, num_prompt: int) -> None:
        """Begin the answer to a prompt of `num_prompt` tokens, whose ids are `prompt_ids`, as `distinct` gives them."""
        self.prompt_ids = prompt_ids
        self._num_read = num_prompt
        self._places: dict[int, int] = {}
        """Of each id of the answer, in the two arrays."""
        self._ids = array(INT32)
        self._counts = array(INT32)

    def read(self, token_ids: "array[int]") -> None:
        """Take in what is new of the known tokens, prompt first; they only ever grow at the end."""
        for token_id in token_ids[self._num_read :]:
            place = self._places.setdefault(token_id, len(self._ids))
            if place == len(self._ids):
                self._ids.append(token_id)
                self._counts.append(0)
            self._counts[place] += 1
        self._num_read = len(token_ids)

    def is_in_prompt(self, token_id: int) -> bool:
        """Tell whether the prompt has an id."""
        place = int(np.searchsorted(self.prompt_ids, token_id))
        return place < len(self.prompt_ids) and int(self.prompt_ids[place]) == token_id

    def is_in_answer(self, token_id: int) -> bool:
        """Tell whether the answer has an id, as far as it was read."""
        return token_id in self._places

    def counts(self, drafted: Sequence[int] = ()) -> tuple[Int32, Int32]:
        """Give the ids of the answer, each once, and how often each occurs; `drafted` tokens count too."""
        new = [each for each in dict.fromkeys(drafted) if each not in self._places]
        ids = np.array([*new, *self._ids] if new else self._ids, np.int32)
        counts = np.zeros(len(ids), np.int32)
        counts[len(new) :] = self._counts
        for token_id in drafted:
            place = self._places.get(token_id)
            counts[new.index(token_id) if place is None else len(new) + place] += 1
        return ids, counts
