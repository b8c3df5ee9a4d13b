"""Lays a plan out as the tensors of a step; the only place that knows both sequences and tensors.

Work on token and block values is vectorised over the whole step: a chunk of a prompt and a single
token take the same path.
"""

from array import array
from collections.abc import Iterable

import numpy as np

from builder.artifact.config import KVGeometry
from builder.artifact.step import Int32, StepTensors
from triton_backend.occurrences import INT32
from triton_backend.plan import Scheduled, StepPlan


def pack(plan: StepPlan, kv: KVGeometry) -> StepTensors:
    """Lay out a plan that schedules something, by the contract of `builder/artifact/step.py`."""
    sequences = [share.sequence for share in plan.scheduled]
    counts = np.array([share.num_tokens for share in plan.scheduled], np.int32)
    num_rows = np.array([share.num_rows for share in plan.scheduled], np.int32)
    starts = np.array([sequence.num_computed for sequence in sequences], np.int32)
    query_start = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])

    token_ids = _joined(map(_token_ids, plan.scheduled))
    positions = np.arange(len(token_ids), dtype=np.int32)
    positions += (starts - query_start[:-1]).repeat(counts)
    tables = _rows([sequence.block_table for sequence in sequences])
    owners = np.arange(len(counts)).repeat(counts)
    slots = tables[owners, positions // kv.block_size] * kv.block_size + positions % kv.block_size

    groups = len(kv.groups)
    return StepTensors(
        token_ids=token_ids,
        positions=positions,
        query_start=query_start,
        seq_lens=starts + counts,
        block_tables=tables[None].repeat(groups, axis=0),
        slot_mapping=slots[None].repeat(groups, axis=0),
        logit_rows=_rows_of(query_start[1:], num_rows),
        block_copies=_copies(plan.block_copies, groups),
    )


def _token_ids(share: Scheduled) -> "array[int]":
    """Give the tokens of a share: known ones, then guesses."""
    sequence, count, _, drafted = share
    known = sequence.token_ids[sequence.num_computed : sequence.num_computed + count]
    return known + array(INT32, drafted) if drafted else known


def _rows_of(ends: Int32, counts: Int32) -> Int32:
    """Give the places of the last `counts` `[S]` tokens before each of `ends` `[S]`."""
    rows = np.arange(counts.sum(), dtype=np.int32)
    rows += (ends - counts.cumsum(dtype=np.int32)).repeat(counts)
    return rows


def _copies(pairs: Iterable[tuple[int, int]], num_groups: int) -> Int32:
    """Give (group, source, destination) `[C, 3]`: blocks are copied in every KV group."""
    copies = [(group, *pair) for pair in pairs for group in range(num_groups)]
    return np.array(copies, np.int32).reshape(-1, 3)


def _joined(runs: "Iterable[array[int]]") -> Int32:
    """Join runs of C integers end to end, into memory of their own."""
    return np.frombuffer(bytearray().join(runs), np.int32)


def _rows(runs: "list[array[int]]") -> Int32:
    """Stack runs of C integers as rows `[len(runs), longest]`, filled up with 0."""
    width = max(map(len, runs)) * runs[0].itemsize
    padded = bytearray().join([run.tobytes().ljust(width, b"\0") for run in runs])
    return np.frombuffer(padded, np.int32).reshape(len(runs), -1)
