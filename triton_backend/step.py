"""Lays a plan out as the tensors of a step; the only place that knows both sequences and tensors.

A chunk of a prompt and a single token take the same path: runs of integers, block by block. Most steps have few tokens,
and for those 25 calls of numpy would take longer (0.12 ms for one sequence) than all else between two steps.
"""

from array import array
from collections.abc import Iterable, Iterator

import numpy as np

from builder.artifact.config import KVGeometry
from builder.artifact.step import Int32, StepTensors
from triton_backend.occurrences import INT32
from triton_backend.plan import Scheduled, StepPlan


def pack(plan: StepPlan, kv: KVGeometry) -> StepTensors:
    """Lay out a plan that schedules something, by the contract of `builder/artifact/step.py`."""
    token_ids, positions, slots = array(INT32), array(INT32), array(INT32)
    query_start, seq_lens, logit_rows = array(INT32, (0,)), array(INT32), array(INT32)
    for share in plan.scheduled:
        start = share.sequence.num_computed
        end = start + share.num_tokens
        token_ids += _token_ids(share)
        positions.extend(range(start, end))
        for run in _slots(share.sequence.block_table, start, end, kv.block_size):
            slots.extend(run)
        query_start.append(len(token_ids))
        seq_lens.append(end)
        logit_rows.extend(range(len(token_ids) - share.num_rows, len(token_ids)))
    groups = len(kv.groups)
    tables = _rows([share.sequence.block_table for share in plan.scheduled])
    return StepTensors(
        token_ids=np.frombuffer(token_ids, np.int32),
        positions=np.frombuffer(positions, np.int32),
        query_start=np.frombuffer(query_start, np.int32),
        seq_lens=np.frombuffer(seq_lens, np.int32),
        block_tables=tables[None].repeat(groups, axis=0),
        slot_mapping=np.frombuffer(slots, np.int32)[None].repeat(groups, axis=0),
        logit_rows=np.frombuffer(logit_rows, np.int32),
        block_copies=_copies(plan.block_copies, groups),
    )


def _slots(table: "array[int]", start: int, end: int, size: int) -> Iterator[range]:
    """Give the slots of positions [start, end), a run for each block."""
    while start < end:
        place = start % size
        count = min(size - place, end - start)
        slot = table[start // size] * size + place
        yield range(slot, slot + count)
        start += count


def _token_ids(share: Scheduled) -> "array[int]":
    """Give the tokens of a share: known ones, then guesses."""
    sequence, count, _, drafted = share
    known = sequence.token_ids[sequence.num_computed : sequence.num_computed + count]
    return known + array(INT32, drafted) if drafted else known


def _copies(pairs: Iterable[tuple[int, int]], num_groups: int) -> Int32:
    """Give (group, source, destination) `[C, 3]`: blocks are copied in every KV group."""
    copies = [(group, *pair) for pair in pairs for group in range(num_groups)]
    return np.array(copies, np.int32).reshape(-1, 3)


def _rows(runs: "list[array[int]]") -> Int32:
    """Stack runs of C integers as rows `[len(runs), longest]`, filled up with 0."""
    width = max(map(len, runs)) * runs[0].itemsize
    padded = bytearray().join([run.tobytes().ljust(width, b"\0") for run in runs])
    return np.frombuffer(padded, np.int32).reshape(len(runs), -1)
