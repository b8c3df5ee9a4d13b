"""Lays a plan out as the tensors of a step; the only place that knows both sequences and tensors.

Work on token and block values is vectorised over the whole step: a chunk of a prompt and a single
token take the same path.
"""

from array import array
from collections.abc import Iterable

import numpy as np

from builder.artifact.config import KVGeometry
from builder.artifact.step import Int32, StepTensors
from triton_backend.scheduler import StepPlan


def pack(plan: StepPlan, kv: KVGeometry) -> StepTensors:
    """Lay out a plan that schedules something, by the contract of `builder/artifact/step.py`."""
    sequences = [item.sequence for item in plan.scheduled]
    counts = np.array([item.num_tokens for item in plan.scheduled], np.int32)
    starts = np.array([sequence.num_computed for sequence in sequences], np.int32)
    query_start = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=query_start[1:])

    token_ids = _joined(
        sequence.token_ids[sequence.num_computed : sequence.num_computed + count]
        for sequence, count, _ in plan.scheduled
    )
    positions = np.arange(len(token_ids), dtype=np.int32)
    positions += (starts - query_start[:-1]).repeat(counts)
    tables = _rows([sequence.block_table for sequence in sequences])
    owners = np.arange(len(counts)).repeat(counts)
    slots = tables[owners, positions // kv.block_size] * kv.block_size + positions % kv.block_size
    has_logits = [item.has_logits for item in plan.scheduled]

    groups = len(kv.groups)
    return StepTensors(
        token_ids=token_ids,
        positions=positions,
        query_start=query_start,
        seq_lens=starts + counts,
        block_tables=tables[None].repeat(groups, axis=0),
        slot_mapping=slots[None].repeat(groups, axis=0),
        logit_rows=query_start[1:][has_logits] - 1,
        block_copies=np.array(plan.block_copies, np.int32).reshape(-1, 3),
    )


def _joined(runs: "Iterable[array[int]]") -> Int32:
    """Join runs of C integers end to end, into memory of their own."""
    return np.frombuffer(bytearray().join(runs), np.int32)


def _rows(runs: "list[array[int]]") -> Int32:
    """Stack runs of C integers as rows `[len(runs), longest]`, filled up with 0."""
    width = max(map(len, runs)) * runs[0].itemsize
    padded = bytearray().join([run.tobytes().ljust(width, b"\0") for run in runs])
    return np.frombuffer(padded, np.int32).reshape(len(runs), -1)
