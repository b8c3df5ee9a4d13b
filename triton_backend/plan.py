"""What one step does, decided before it: whose tokens it computes, and which of them tell of a next token.

The scheduler makes a plan, `step.py` lays it out, `commit.py` counts it as done.
"""

from dataclasses import dataclass
from typing import NamedTuple

from triton_backend.reasons import WaitReason
from triton_backend.rows import LogitRow
from triton_backend.sequence import Sequence


class Scheduled(NamedTuple):
    """A sequence's share of a step.

    |<-- computed -->|<-- pending -->|<-- drafted -->|
                     |<-- num_tokens -->|                 a chunk, without a row
                     |<-- num_tokens --------------->|
                                   |<-- num_rows --->|
    """

    sequence: Sequence
    num_tokens: int
    """Tokens to compute: the next pending ones and, where those are all, drafted ones."""
    num_rows: int
    """The last so many of them have logit rows."""
    drafted: tuple[int, ...] = ()
    """Guesses at what comes after the last known token."""

    @property
    def num_known_tokens(self) -> int:
        """Tokens to compute that are known, not guessed."""
        return self.num_tokens - len(self.drafted)

    @property
    def rows(self) -> list[LogitRow]:
        """The logit rows, in order."""
        sequence, num_tokens, num_rows, drafted = self
        # How many drafts are before the last row; below 0, how many known tokens are after it.
        last = sequence.num_computed + num_tokens - len(sequence.token_ids)
        rows = []
        for beyond in range(last - num_rows + 1, last + 1):
            if beyond >= 0:
                rows.append(LogitRow(sequence, drafted[:beyond]))
            else:
                rows.append(LogitRow(sequence, (), -beyond))
        return rows


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step does. Every scheduled sequence holds blocks for all tokens of its share."""

    scheduled: tuple[Scheduled, ...]
    """Oldest admission first."""
    preempted: tuple[Sequence, ...] = ()
    """Sequences that lost their blocks to this step and wait again."""
    admitted: tuple[Sequence, ...] = ()
    """Sequences that run from this step on."""
    block_copies: tuple[tuple[int, int], ...] = ()
    """(source, destination) of blocks to copy before any write, in every KV group."""
    waits_for: WaitReason | None = None
    """Why nobody else was admitted; None if nobody else waits."""

    @property
    def rows(self) -> list[LogitRow]:
        """The logit rows of the step, in order. They change when the step is committed."""
        return [row for item in self.scheduled for row in item.rows]
