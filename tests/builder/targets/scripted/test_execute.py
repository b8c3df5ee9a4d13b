"""The scripted engine: equal to its oracle however a sequence is cut, and strict about steps."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.config import Limits
from builder.artifact.step import RowAsks, StepTensors
from builder.errors import EngineError
from builder.targets.scripted.execute import ScriptedExecutor
from builder.targets.scripted.oracle import next_logits

LIMITS = Limits(max_seq_len=40, max_num_seqs=3, max_num_tokens=16, max_logit_rows=2, num_blocks=12)
BLOCK = 4
VOCAB = 50


def ints(*values: Any) -> np.ndarray:
    return np.array(values, np.int32)


def engine(num_groups: int = 1) -> ScriptedExecutor:
    return ScriptedExecutor(LIMITS, block_size=BLOCK, vocab_size=VOCAB, num_groups=num_groups)


def run_of(
    tokens: list[int], start: int, table: list[int], *, num_groups: int = 1, has_row: bool = True
) -> StepTensors:
    """A step of one sequence: its `tokens` from position `start` on."""
    positions = np.arange(start, start + len(tokens), dtype=np.int32)
    slots = np.array(table, np.int32)[positions // BLOCK] * BLOCK + positions % BLOCK
    return StepTensors(
        token_ids=np.array(tokens, np.int32),
        positions=positions,
        query_start=ints(0, len(tokens)),
        seq_lens=ints(start + len(tokens)),
        block_tables=np.array([[table]] * num_groups, np.int32),
        slot_mapping=np.array([slots] * num_groups, np.int32),
        logit_rows=ints(len(tokens) - 1)[: int(has_row)],
        block_copies=np.zeros((0, 3), np.int32),
    )


def asks(step: StepTensors) -> RowAsks:
    return RowAsks(0, np.zeros(len(step.logit_rows), np.float32))


def last_row(executor: ScriptedExecutor, step: StepTensors) -> list[float]:
    result = executor.execute(step, asks(step))
    return list(result.full_row(len(step.logit_rows) - 1))


@given(
    tokens=st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=14),
    cuts=st.sets(st.integers(1, 13)),
    num_groups=st.sampled_from([1, 2]),
)
def test_any_cut_of_a_sequence_equals_the_oracle(
    tokens: list[int], cuts: set[int], num_groups: int
) -> None:
    executor = engine(num_groups)
    bounds = sorted({0, len(tokens)} | {cut for cut in cuts if cut < len(tokens)})
    row: list[float] = []
    for start, end in pairwise(bounds):
        row = last_row(
            executor, run_of(tokens[start:end], start, [7, 2, 9, 4], num_groups=num_groups)
        )
    assert row == next_logits(tokens, vocab_size=VOCAB, num_groups=num_groups)


def test_two_sequences_in_a_step_do_not_mix() -> None:
    step = StepTensors(
        token_ids=ints(1, 2, 3, 4, 5),
        positions=ints(0, 1, 0, 1, 2),
        query_start=ints(0, 2, 5),
        seq_lens=ints(2, 3),
        block_tables=ints([[3], [5]]),
        slot_mapping=ints([12, 13, 20, 21, 22]),
        logit_rows=ints(1, 4),
        block_copies=np.zeros((0, 3), np.int32),
    )
    result = engine().execute(step, RowAsks(3, np.array([0, 0.5], np.float32)))
    for row, tokens in enumerate(((1, 2), (3, 4, 5))):
        logits = next_logits(tokens, vocab_size=VOCAB)
        assert list(result.full_row(row)) == logits
        assert result.argmax[row] == logits.index(max(logits))
        assert list(result.candidate_logits[row]) == sorted(logits, reverse=True)[:3]


def test_a_copied_block_continues_as_the_original() -> None:
    executor = engine()
    last_row(executor, run_of([1, 2, 3], 0, [7]))
    step = replace(run_of([4], 3, [8]), block_copies=ints([0, 7, 8]))
    assert last_row(executor, step) == next_logits([1, 2, 3, 4], vocab_size=VOCAB)


def test_a_slot_read_before_it_was_written_is_an_error() -> None:
    with pytest.raises(EngineError, match="read before it was written"):
        last_row(engine(), run_of([4], 3, [8]))


def test_what_another_sequence_left_in_a_block_changes_the_logits() -> None:
    executor = engine()
    last_row(executor, run_of([9, 9, 9, 9], 0, [7]))
    assert last_row(executor, run_of([4], 3, [7])) != next_logits([1, 2, 3, 4], vocab_size=VOCAB)


def test_a_chunk_without_logit_row_gives_none() -> None:
    step = run_of([1, 2], 0, [1], has_row=False)
    result = engine().execute(step, asks(step))
    assert len(result.argmax) == 0


def test_a_closed_engine_runs_no_step() -> None:
    executor = engine()
    executor.close()
    executor.close()
    with pytest.raises(EngineError, match="closed"):
        last_row(executor, run_of([1], 0, [1]))


GOOD = StepTensors(
    token_ids=ints(1, 2, 3, 4, 5),
    positions=ints(0, 1, 0, 1, 2),
    query_start=ints(0, 2, 5),
    seq_lens=ints(2, 3),
    block_tables=ints([[3, 0], [5, 6]]),
    slot_mapping=ints([12, 13, 20, 21, 22]),
    logit_rows=ints(1, 4),
    block_copies=np.zeros((0, 3), np.int32),
)
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a wrong dtype": ({"positions": GOOD.positions.astype(np.int64)}, "positions is int64"),
    "a wrong shape": ({"slot_mapping": GOOD.slot_mapping[0]}, "slot_mapping is int32 of shape"),
    "tokens without a slot": ({"slot_mapping": GOOD.slot_mapping[:, :4]}, "slot_mapping"),
    "adapters": ({"adapter_slots": ints(0, 0)}, "no adapters"),
    "an empty sequence": ({"query_start": ints(0, 0, 5)}, "an empty sequence"),
    "tokens of no sequence": ({"query_start": ints(0, 2, 4)}, "belong to none"),
    "too short a sequence": ({"seq_lens": ints(1, 3)}, "more new tokens"),
    "positions elsewhere": ({"seq_lens": ints(3, 3)}, "positions"),
    "an unknown token": ({"token_ids": ints(1, 2, 3, 4, VOCAB)}, "outside the vocabulary"),
    "a negative token": ({"token_ids": ints(1, 2, -3, 4, 5)}, "outside the vocabulary"),
    "rows out of order": ({"logit_rows": ints(4, 1)}, "ascend"),
    "a row twice": ({"logit_rows": ints(4, 4)}, "ascend"),
    "a row outside": ({"logit_rows": ints(1, 5)}, "outside the 5 tokens"),
    "too few blocks": ({"block_tables": ints([[3, 0], [0, 0]])}, "0 blocks for 3 tokens"),
    "the padding block": ({"block_tables": ints([[0, 3], [5, 6]])}, "block 0"),
    "a block outside": ({"block_tables": ints([[3, 0], [5, 12]])}, "outside the pool"),
    "a block twice": ({"block_tables": ints([[3, 0], [5, 5]])}, "twice"),
    "a slot of another table": ({"slot_mapping": ints([12, 13, 12, 13, 14])}, "follow"),
    "one slot for two": (
        {"block_tables": ints([[3, 0], [3, 6]]), "slot_mapping": ints([12, 13, 12, 13, 14])},
        "two tokens in one slot",
    ),
    "a copy in no group": ({"block_copies": ints([1, 3, 4])}, "unknown KV group"),
    "a copy to the padding block": ({"block_copies": ints([0, 3, 0])}, "from or to no block"),
}


def test_the_good_step_is_good() -> None:
    engine().execute(GOOD, asks(GOOD))


@pytest.mark.parametrize("name", BAD)
def test_a_bad_step_is_refused(name: str) -> None:
    changes, message = BAD[name]
    step = replace(GOOD, **changes)
    with pytest.raises(EngineError, match=message):
        engine().execute(step, asks(step))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda: np.zeros(1, np.float32), "temperatures is float32 of shape"),
        (lambda: np.zeros(2, np.float64), "temperatures is float64"),
        (lambda: np.array([0, -1], np.float32), "negative"),
    ],
)
def test_bad_temperatures_are_refused(change: Callable[[], Any], message: str) -> None:
    with pytest.raises(EngineError, match=message):
        engine().execute(GOOD, RowAsks(0, change()))


@pytest.mark.parametrize(
    "field", ["max_seq_len", "max_num_seqs", "max_num_tokens", "max_logit_rows"]
)
def test_a_step_beyond_a_limit_is_refused(field: str) -> None:
    executor = ScriptedExecutor(replace(LIMITS, **{field: 1}), block_size=BLOCK, vocab_size=VOCAB)
    with pytest.raises(EngineError, match="compiled for 1"):
        executor.execute(GOOD, asks(GOOD))
