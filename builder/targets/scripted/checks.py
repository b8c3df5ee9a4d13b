"""Refuses a step that is not laid out by the contract of `builder/artifact/step.py`, naming what is wrong.

All engines check shapes, types and sizes (`check_step`) and trust the packer for the rest; the scripted one is there to
catch it.
"""

import numpy as np

from builder.artifact.config import KVGeometry
from builder.artifact.step import Int32, RowAsks, StepTensors
from builder.errors import EngineError


def check_layout(
    step: StepTensors, asks: RowAsks, *, num_blocks: int, kv: KVGeometry, vocab_size: int
) -> None:
    """Prove that each tensor of a step that `check_step` let pass has its meaning.

    Raises:
        EngineError: one has not.
    """
    groups = len(kv.groups)
    _require((asks.temperatures >= 0).all(), "a temperature is negative")
    _check_sequences(step, vocab_size)
    _check_rows(step)
    for group in range(groups):
        _check_blocks(step, group, num_blocks=num_blocks, block_size=kv.block_size)
    _check_copies(step.block_copies, groups, num_blocks)


def _require(condition: object, problem: str) -> None:
    if not condition:
        raise EngineError(f"bad step: {problem}.")


def _check_sequences(step: StepTensors, vocab_size: int) -> None:
    counts = np.diff(step.query_start)
    first = step.seq_lens - counts
    expected = np.arange(step.num_tokens) - (step.query_start[:-1] - first).repeat(counts)
    _require((first >= 0).all(), "a sequence with more new tokens than tokens")
    _require((step.positions == expected).all(), "positions do not lead up to seq_lens")
    _require(
        (step.token_ids >= 0).all() and (step.token_ids < vocab_size).all(),
        f"a token id outside the vocabulary of {vocab_size}",
    )


def _check_rows(step: StepTensors) -> None:
    rows = step.logit_rows
    _require((np.diff(rows) > 0).all(), "logit_rows do not ascend")
    _require(
        (rows >= 0).all() and (rows < step.num_tokens).all(),
        f"a logit row outside the {step.num_tokens} tokens",
    )


def _check_blocks(step: StepTensors, group: int, *, num_blocks: int, block_size: int) -> None:
    tables, slots = step.block_tables[group], step.slot_mapping[group]
    for table, length in zip(tables, step.seq_lens, strict=True):
        held = np.trim_zeros(table, "b")
        needed = -(-int(length) // block_size)
        _require(len(held) >= needed, f"{len(held)} blocks for {length} tokens")
        _require((held > 0).all(), "block 0, reserved for padding, in a block table")
        _require((held < num_blocks).all(), f"a block outside the pool of {num_blocks}")
        _require(len(np.unique(held)) == len(held), "a block twice in one table")
    owners = np.arange(step.num_seqs).repeat(np.diff(step.query_start))
    blocks = tables[owners, step.positions // block_size]
    expected = blocks * block_size + step.positions % block_size
    _require((slots == expected).all(), "slot_mapping does not follow the block tables")
    _require(len(np.unique(slots)) == len(slots), "two tokens in one slot")


def _check_copies(copies: Int32, num_groups: int, num_blocks: int) -> None:
    groups, blocks = copies[:, 0], copies[:, 1:]
    _require((groups >= 0).all() and (groups < num_groups).all(), "a copy in an unknown KV group")
    _require((blocks > 0).all() and (blocks < num_blocks).all(), "a copy from or to no block")
