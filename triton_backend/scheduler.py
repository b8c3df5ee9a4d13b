"""Decides what a step computes: spends the token budget, hands out blocks, takes them back.

There is no prefill phase and no decode phase: a sequence has pending tokens, and a step computes some
of them. Sequences run and wait in the order of their arrival, and whoever runs arrived before whoever
waits. The oldest always gets on, so each sequence that fits the pool alone is finished in the end.
Nobody is admitted unless budget is left by all who run, so each running sequence has at least one token
in every step, and only the newest can have more than one pending.
"""

from collections import deque
from dataclasses import dataclass
from typing import NamedTuple

from builder.artifact.config import Limits
from triton_backend.kv.pool import BlockPool
from triton_backend.sequence import Sequence


class Scheduled(NamedTuple):
    """A sequence's share of a step: its next `num_tokens` pending tokens."""

    sequence: Sequence
    num_tokens: int
    has_logits: bool
    """Its last known token is among them, so the step gives the logits of the next."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What one step does. Every scheduled sequence holds blocks for all its known tokens."""

    scheduled: tuple[Scheduled, ...]
    """Oldest sequence first."""
    preempted: tuple[Sequence, ...]
    """Sequences that lost their blocks to this step and wait again."""
    block_copies: tuple[tuple[int, int, int], ...] = ()
    """(group, source, destination) of blocks to copy before any write."""

    @property
    def logit_sequences(self) -> list[Sequence]:
        """The sequences of the step's logit rows, in row order."""
        return [item.sequence for item in self.scheduled if item.has_logits]


class Scheduler:
    """Owns the queue, the running sequences and the block pool."""

    def __init__(self, limits: Limits, pool: BlockPool, *, watermark: float) -> None:
        """Start idle; `watermark` is the share of the pool kept free when admitting beside others."""
        self.waiting: deque[Sequence] = deque()
        """Hold no blocks; the head is admitted next."""
        self.running: list[Sequence] = []
        """Hold blocks; oldest first."""
        self.pool = pool
        self._max_num_tokens = limits.max_num_tokens
        # Sooner or later each running sequence needs a logit row in the same step.
        self._max_running = min(limits.max_num_seqs, limits.max_logit_rows)
        self._watermark_blocks = max(1, int(watermark * pool.num_blocks))

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. It must fit the pool when alone."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that finished, wherever it is, and free its blocks."""
        queue = self.running if sequence.block_table else self.waiting
        queue.remove(sequence)
        self._free_blocks(sequence)

    def plan(self) -> StepPlan:
        """Choose the tokens of the next step and take the blocks they need."""
        scheduled: list[Scheduled] = []
        preempted: list[Sequence] = []
        tokens = self._max_num_tokens

        index = 0
        while index < len(self.running):
            sequence = self.running[index]
            if self._cover(sequence, preempted):
                scheduled.append(_share(sequence, tokens))
                tokens -= scheduled[-1].num_tokens
            index += 1

        # Whoever was just preempted heads the queue, and isn't admitted again in this step: its blocks
        # are no longer all free.
        while tokens and self._can_admit():
            scheduled.append(_share(self._admit(), tokens))
            tokens -= scheduled[-1].num_tokens

        return StepPlan(tuple(scheduled), tuple(preempted))

    def _cover(self, sequence: Sequence, preempted: list[Sequence]) -> bool:
        """Give a running sequence blocks for all known tokens; say no if it lost its own instead.

        The newest sequence pays. It is not scheduled yet: those scheduled are older than `sequence`.
        """
        missing = self.pool.blocks_for(sequence.num_known) - len(sequence.block_table)
        while missing > self.pool.num_free:
            newest = self.running.pop()
            self._free_blocks(newest)
            newest.num_computed = 0
            self.waiting.appendleft(newest)
            preempted.append(newest)
            if newest is sequence:
                return False
        if missing:
            sequence.block_table.extend(self.pool.allocate(missing))
        return True

    def _can_admit(self) -> bool:
        """Whether the head of the queue gets blocks for all known tokens without crowding others."""
        if not self.waiting or len(self.running) == self._max_running:
            return False
        spare = self._watermark_blocks if self.running else 0
        needed = self.pool.blocks_for(self.waiting[0].num_known)
        return needed + spare <= self.pool.num_free

    def _admit(self) -> Sequence:
        """Move the head of the queue to the running sequences, with blocks for all known tokens."""
        sequence = self.waiting.popleft()
        blocks = self.pool.allocate(self.pool.blocks_for(sequence.num_known))
        sequence.block_table.extend(blocks)
        self.running.append(sequence)
        return sequence

    def _free_blocks(self, sequence: Sequence) -> None:
        self.pool.release(sequence.block_table)
        del sequence.block_table[:]


def _share(sequence: Sequence, tokens: int) -> Scheduled:
    """Give a sequence what it can use of the tokens that are left."""
    pending = sequence.num_pending
    return Scheduled(sequence, min(pending, tokens), pending <= tokens)
