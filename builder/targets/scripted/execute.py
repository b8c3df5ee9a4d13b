"""The scripted engine: a real block pool and a model one can check by hand (`oracle.py`).

Its KV cache holds one integer per slot, reached only through slot mapping and block tables, as a
kernel would. Slots start as poison and are never cleaned: whoever reads a slot that was not written by
the same sequence gets an error or other tokens than the oracle.
"""

import numpy as np
from numpy.typing import NDArray

from builder.artifact.config import KVGeometry, KVGroup, Limits
from builder.artifact.step import Float32, RowAsks, StepResult, StepTensors
from builder.errors import EngineError
from builder.targets.executor import check_step, result_from_rows
from builder.targets.scripted.checks import check_layout
from builder.targets.scripted.oracle import MASK, ODD, entry_of

POISON = -1


class ScriptedExecutor:
    """An executor of `oracle.py` that refuses every step outside the contract."""

    def __init__(
        self, limits: Limits, *, block_size: int, vocab_size: int, num_groups: int = 1
    ) -> None:
        group = KVGroup(layers=(0,), num_kv_heads=1, head_dim=1, dtype="int64")
        self.limits = limits
        self.kv = KVGeometry(block_size=block_size, groups=(group,) * num_groups)
        self.vocab_size = vocab_size
        self._cache: NDArray[np.int64] = np.full(
            (num_groups, limits.num_blocks, block_size), POISON, np.int64
        )
        self._is_closed = False

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """Check the step, compute it sequence after sequence, and answer from full logit rows.

        Raises:
            EngineError: the engine is closed, or the step is wrong.
        """
        if self._is_closed:
            raise EngineError("the scripted engine is closed.")
        num_blocks = self.limits.num_blocks
        check_step(step, asks, limits=self.limits, kv=self.kv)
        check_layout(step, asks, num_blocks=num_blocks, kv=self.kv, vocab_size=self.vocab_size)
        if len(step.block_copies):
            group, source, destination = step.block_copies.T
            self._cache[group, destination] = self._cache[group, source]
        for sequence in range(step.num_seqs):
            for group in range(len(self.kv.groups)):
                self._write(step, sequence, group)
        rows = [self._row(step, int(token)) for token in step.logit_rows]
        shape = (len(rows), self.vocab_size)
        return result_from_rows(np.array(rows, np.float32).reshape(shape), asks)

    def close(self) -> None:
        """Refuse further steps."""
        self._is_closed = True

    def _write(self, step: StepTensors, sequence: int, group: int) -> None:
        """Leave the entries of a sequence's new tokens in their slots."""
        first, end = step.query_start[sequence], step.query_start[sequence + 1]
        digest = self._digest(step, sequence, group, int(step.positions[first]))
        slots = self._cache[group].reshape(-1)
        for token in range(first, end):
            position = int(step.positions[token])
            entry = entry_of(int(step.token_ids[token]), position, digest)
            slots[step.slot_mapping[group, token]] = entry
            digest = (digest + entry * (2 * position + 1)) & MASK

    def _digest(self, step: StepTensors, sequence: int, group: int, length: int) -> int:
        """Sum up the first `length` entries of a sequence, read through its block table."""
        blocks = step.block_tables[group, sequence]
        entries = self._cache[group, blocks].reshape(-1)[:length]
        if (entries == POISON).any():
            raise EngineError("bad step: a slot is read before it was written.")
        weights = 2 * np.arange(length, dtype=np.uint64) + np.uint64(1)
        return (int((entries.astype(np.uint64) * weights).sum()) + group + 1) & MASK

    def _row(self, step: StepTensors, token: int) -> Float32:
        """Give the logits `[V]` after a token of the step."""
        sequence = int(np.searchsorted(step.query_start, token, side="right")) - 1
        length = int(step.positions[token]) + 1
        digests = (
            self._digest(step, sequence, group, length) for group in range(len(self.kv.groups))
        )
        digest = np.uint64(sum(digests) & MASK)
        mixed = digest ^ (np.arange(1, self.vocab_size + 1, dtype=np.uint64) * np.uint64(ODD[1]))
        mixed = (mixed ^ mixed >> np.uint64(31)) * np.uint64(ODD[0])
        return ((mixed >> np.uint64(56)) / 16).astype(np.float32)
