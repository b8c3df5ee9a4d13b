"""Drive an executor by hand, without the engine loop: lay out steps, get the logits of every token."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from builder.artifact.step import RowAsks, StepTensors
from builder.targets.executor import Executor

Chunk = tuple[str, Sequence[int]]
"""A sequence's name and its next tokens."""


class PagedRunner:
    """Keeps block tables for named sequences; blocks are handed out in a shuffled order."""

    def __init__(self, executor: Executor, seed: int = 0) -> None:
        self._executor = executor
        free = np.arange(1, executor.limits.num_blocks)
        self._free = [int(block) for block in np.random.default_rng(seed).permutation(free)]
        self._tables: dict[str, list[int]] = {}
        self._lengths: dict[str, int] = {}

    def step(self, *chunks: Chunk) -> list[NDArray[np.float32]]:
        """Run one step and give the logits `[tokens, V]` of each chunk."""
        for name, tokens in chunks:
            self._extend(name, len(tokens))
        counts = [len(tokens) for _, tokens in chunks]
        ends = np.cumsum(counts)
        result = self._executor.execute(self._lay_out(chunks, counts), self._asks(int(ends[-1])))
        rows = np.stack([result.full_row(row) for row in range(ends[-1])])
        return np.split(rows, ends[:-1])

    def whole(self, tokens: Sequence[int], chunk: int = 1 << 30) -> NDArray[np.float32]:
        """Run one sequence alone, in chunks, and give all its logits; its blocks are given back."""
        parts = [
            self.step(("alone", tokens[start : start + chunk]))[0]
            for start in range(0, len(tokens), chunk)
        ]
        self.forget("alone")
        return np.concatenate(parts)

    def forget(self, name: str) -> None:
        """Give back the blocks of a sequence; what they hold stays there, for the next to overwrite."""
        self._free += self._tables.pop(name)
        del self._lengths[name]

    def _extend(self, name: str, count: int) -> None:
        table = self._tables.setdefault(name, [])
        self._lengths[name] = self._lengths.get(name, 0) + count
        while len(table) * self._executor.kv.block_size < self._lengths[name]:
            table.append(self._free.pop(0))

    def _lay_out(self, chunks: Sequence[Chunk], counts: list[int]) -> StepTensors:
        size = self._executor.kv.block_size
        names = [name for name, _ in chunks]
        width = max(len(self._tables[name]) for name in names)
        tables = np.zeros((1, len(names), width), np.int32)
        positions: list[int] = []
        slots: list[int] = []
        for row, (name, count) in enumerate(zip(names, counts, strict=True)):
            table = self._tables[name]
            tables[0, row, : len(table)] = table
            places = range(self._lengths[name] - count, self._lengths[name])
            positions += places
            slots += [table[place // size] * size + place % size for place in places]
        return StepTensors(
            token_ids=np.array([token for _, tokens in chunks for token in tokens], np.int32),
            positions=np.array(positions, np.int32),
            query_start=np.cumsum([0, *counts]).astype(np.int32),
            seq_lens=np.array([self._lengths[name] for name in names], np.int32),
            block_tables=tables,
            slot_mapping=np.array([slots], np.int32),
            logit_rows=np.arange(len(slots), dtype=np.int32),
            block_copies=np.zeros((0, 3), np.int32),
        )

    def _asks(self, num_rows: int) -> RowAsks:
        return RowAsks(num_candidates=0, temperatures=np.zeros(num_rows, np.float32))
