"""The packer: by hand on a small plan, and against a plain loop on random ones."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.config import KVGeometry, KVGroup
from builder.artifact.step import StepTensors
from tests.triton_backend.making import make_sequence
from triton_backend.scheduler import Scheduled, StepPlan
from triton_backend.step import pack

GROUP = KVGroup(layers=(0,), num_kv_heads=1, head_dim=1, dtype="int64")


def scheduled(
    num_prompt: int, table: list[int], *, first: int, computed: int, count: int
) -> Scheduled:
    sequence = make_sequence("a", num_prompt, first_token=first)
    sequence.block_table.extend(table)
    sequence.num_computed = computed
    return Scheduled(sequence, count, computed + count == num_prompt)


def by_hand(plan: StepPlan, kv: KVGeometry) -> dict[str, np.ndarray]:
    """The same layout, token by token."""
    tokens, positions, slots, rows, starts, lengths = [], [], [], [], [0], []
    width = max(len(item.sequence.block_table) for item in plan.scheduled)
    tables = []
    for sequence, count, has_logits in plan.scheduled:
        for position in range(sequence.num_computed, sequence.num_computed + count):
            tokens.append(sequence.token_ids[position])
            positions.append(position)
            block, offset = divmod(position, kv.block_size)
            slots.append(sequence.block_table[block] * kv.block_size + offset)
        starts.append(len(tokens))
        lengths.append(sequence.num_computed + count)
        tables.append([*sequence.block_table, *[0] * (width - len(sequence.block_table))])
        if has_logits:
            rows.append(len(tokens) - 1)
    groups = len(kv.groups)
    return {
        "token_ids": np.array(tokens),
        "positions": np.array(positions),
        "query_start": np.array(starts),
        "seq_lens": np.array(lengths),
        "block_tables": np.array([tables] * groups),
        "slot_mapping": np.array([slots] * groups),
        "logit_rows": np.array(rows),
        "block_copies": np.array(plan.block_copies).reshape(-1, 3),
    }


def assert_same(step: StepTensors, expected: dict[str, np.ndarray]) -> None:
    for name, tensor in expected.items():
        packed = getattr(step, name)
        assert packed.dtype == np.int32, name
        assert packed.flags.c_contiguous, name
        assert packed.flags.writeable, name
        assert packed.tolist() == tensor.tolist(), name


def test_a_chunk_a_single_token_and_a_whole_prompt_by_hand() -> None:
    plan = StepPlan(
        (
            scheduled(9, [5, 6, 7], first=10, computed=3, count=4),
            scheduled(6, [2, 9], first=20, computed=5, count=1),
            scheduled(2, [3], first=30, computed=0, count=2),
        ),
        (),
    )
    expected = {
        "token_ids": [13, 14, 15, 16, 25, 30, 31],
        "positions": [3, 4, 5, 6, 5, 0, 1],
        "query_start": [0, 4, 5, 7],
        "seq_lens": [7, 6, 2],
        "block_tables": [[[5, 6, 7], [2, 9, 0], [3, 0, 0]]],
        "slot_mapping": [[23, 24, 25, 26, 37, 12, 13]],
        "logit_rows": [4, 6],
        "block_copies": [],
    }
    step = pack(plan, KVGeometry(4, (GROUP,)))
    assert_same(step, {name: np.array(values) for name, values in expected.items()})
    assert step.block_copies.shape == (0, 3)
    assert step.adapter_slots is None


def test_block_copies_are_passed_on() -> None:
    item = scheduled(2, [3], first=0, computed=1, count=1)
    step = pack(StepPlan((item,), (), ((0, 4, 5), (0, 6, 7))), KVGeometry(4, (GROUP,)))
    assert step.block_copies.tolist() == [[0, 4, 5], [0, 6, 7]]


@pytest.mark.parametrize("num_groups", [1, 3])
@given(seed=st.integers(0, 2**32), block_size=st.integers(1, 9), num_seqs=st.integers(1, 20))
def test_random_plans_equal_a_plain_loop(
    num_groups: int, seed: int, block_size: int, num_seqs: int
) -> None:
    rng = random.Random(seed)  # noqa: S311
    items = []
    for _ in range(num_seqs):
        known = rng.randint(1, 60)
        computed = rng.randint(0, known - 1)
        table = [rng.randint(1, 10**6) for _ in range(-(-known // block_size))]
        count = rng.choice([1, known - computed, rng.randint(1, known - computed)])
        first = rng.randint(0, 10**6)
        items.append(scheduled(known, table, first=first, computed=computed, count=count))
    plan = StepPlan(tuple(items), ())
    kv = KVGeometry(block_size, (GROUP,) * num_groups)
    assert_same(pack(plan, kv), by_hand(plan, kv))
