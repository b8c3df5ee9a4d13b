"""Cut a step into calls of bounded work: which sequences share one, and how far a prompt goes in each.

It knows sizes and order alone. A call reads what earlier calls of the step wrote.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from builder.artifact.step import StepTensors

Int64 = NDArray[np.int64]

MAX_PADDING = 2
"""Padded rows or positions per real one that one call may cost."""
FREE_POSITIONS = 4096
"""Positions of padding that are never worth a call of their own."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Runs of tokens of a step, P of them, each of one sequence; all `[P]`."""

    turn: Int64
    """Which piece of its sequence it is: later ones need the KV of earlier ones."""
    owner: Int64
    first: Int64
    """Index of its first token in the step."""
    count: Int64
    length: Int64
    """Tokens of the sequence after it."""

    def take(self, index: Int64) -> "Pieces":
        """Choose some, in this order."""
        return Pieces(
            self.turn[index],
            self.owner[index],
            self.first[index],
            self.count[index],
            self.length[index],
        )


def _cut(step: StepTensors, max_area: int) -> Pieces:
    """Cut each sequence's tokens so that rows times positions of a piece stay below `max_area`."""
    rows: list[tuple[int, int, int, int, int]] = []
    starts, lengths = step.query_start.tolist(), step.seq_lens.tolist()
    for owner, length in enumerate(lengths):
        begin, end = starts[owner], starts[owner + 1]
        most = max(1, max_area // length)
        for turn, first in enumerate(range(begin, end, most)):
            last = min(first + most, end)
            rows.append((turn, owner, first, last - first, length - (end - last)))
    return Pieces(*np.array(rows, np.int64).T)


def parts(
    step: StepTensors, *, block_size: int, max_area: int
) -> Iterator[tuple[StepTensors, Int64]]:
    """Cut a step into calls, each with the indices of its logit rows in the step.

    Pieces of like size share a call; a new one begins where the next piece would make padding more than double
    the work, or the scores of a call larger than `max_area`, or where it needs what the call computes.
    """
    pieces = _cut(step, max_area)
    pieces = pieces.take(np.lexsort((pieces.length, pieces.count, pieces.turn)))
    first, size = 0, len(pieces.turn)
    for stop in range(1, size + 1):
        if stop == size or not _fits(pieces.take(np.arange(first, stop + 1)), max_area):
            members = pieces.take(np.arange(first, stop))
            yield _part(step, members.take(np.argsort(members.first)), block_size)
            first = stop


def _fits(pieces: Pieces, max_area: int) -> bool:
    """Tell whether pieces may share a call."""
    size, count, length = len(pieces.turn), int(pieces.count.max()), int(pieces.length.max())
    return (
        pieces.turn[0] == pieces.turn[-1]
        and count * size <= MAX_PADDING * int(pieces.count.sum())
        and length * size <= MAX_PADDING * int(pieces.length.sum()) + FREE_POSITIONS
        and count * length * size <= max_area
    )


def _part(step: StepTensors, pieces: Pieces, block_size: int) -> tuple[StepTensors, Int64]:
    """Give the part of a step that some of its pieces are, in the order of their tokens."""
    chosen = np.zeros(step.num_tokens, bool)
    for first, count in zip(pieces.first.tolist(), pieces.count.tolist(), strict=True):
        chosen[first : first + count] = True
    wanted = np.flatnonzero(chosen[step.logit_rows])
    place = np.cumsum(chosen) - 1
    width = -(-int(pieces.length.max()) // block_size)
    part = StepTensors(
        token_ids=step.token_ids[chosen],
        positions=step.positions[chosen],
        query_start=np.concatenate([[0], np.cumsum(pieces.count)]).astype(np.int32),
        seq_lens=pieces.length.astype(np.int32),
        block_tables=step.block_tables[:, pieces.owner, :width],
        slot_mapping=step.slot_mapping[:, chosen],
        logit_rows=place[step.logit_rows[wanted]].astype(np.int32),
        block_copies=step.block_copies,
    )
    return part, wanted
