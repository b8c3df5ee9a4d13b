"""The packer: by hand on a small plan, and against a plain loop on random ones."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.config import KVGeometry, KVGroup
from builder.artifact.step import StepTensors
from tests.triton_backend.making import make_sequence
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.step import pack

GROUP = KVGroup(layers=(0,), num_kv_heads=1, head_dim=1, dtype="int64")


def scheduled(
    num_prompt: int,
    table: list[int],
    *,
    first: int,
    computed: int,
    count: int,
    rows: int = 0,
    drafted: tuple[int, ...] = (),
) -> Scheduled:
    sequence = make_sequence("a", num_prompt, first_token=first)
    sequence.block_table.extend(table)
    sequence.num_computed = computed
    return Scheduled(sequence, count, rows, drafted)


def by_hand(plan: StepPlan, kv: KVGeometry) -> dict[str, np.ndarray]:
    """The same layout, token by token."""
    tokens, positions, slots, rows, starts, lengths = [], [], [], [], [0], []
    width = max(len(item.sequence.block_table) for item in plan.scheduled)
    tables = []
    for sequence, count, num_rows, drafted in plan.scheduled:
        known = [*sequence.token_ids, *drafted]
        for position in range(sequence.num_computed, sequence.num_computed + count):
            tokens.append(known[position])
            positions.append(position)
            block, offset = divmod(position, kv.block_size)
            slots.append(sequence.block_table[block] * kv.block_size + offset)
        starts.append(len(tokens))
        lengths.append(sequence.num_computed + count)
        tables.append([*sequence.block_table, *[0] * (width - len(sequence.block_table))])
        rows += range(len(tokens) - num_rows, len(tokens))
    groups = len(kv.groups)
    return {
        "token_ids": np.array(tokens),
        "positions": np.array(positions),
        "query_start": np.array(starts),
        "seq_lens": np.array(lengths),
        "block_tables": np.array([tables] * groups),
        "slot_mapping": np.array([slots] * groups),
        "logit_rows": np.array(rows),
        "block_copies": np.array(
            [[group, *pair] for pair in plan.block_copies for group in range(groups)]
        ).reshape(-1, 3),
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
            scheduled(6, [2, 9], first=20, computed=5, count=1, rows=1),
            scheduled(2, [3], first=30, computed=0, count=2, rows=1),
        )
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


def test_drafted_tokens_follow_the_known_ones_and_each_has_a_row() -> None:
    share = scheduled(6, [2, 9], first=20, computed=5, count=3, rows=3, drafted=(40, 41))
    step = pack(StepPlan((share,)), KVGeometry(4, (GROUP,)))
    assert step.token_ids.tolist() == [25, 40, 41]
    assert step.positions.tolist() == [5, 6, 7]
    assert step.seq_lens.tolist() == [8]
    assert step.logit_rows.tolist() == [0, 1, 2]


def test_rows_inside_a_prompt_are_its_last_tokens() -> None:
    plan = StepPlan(
        (
            scheduled(9, [5, 6, 7], first=10, computed=3, count=4, rows=3),
            scheduled(9, [8, 9, 4], first=10, computed=3, count=2, rows=0),
            scheduled(9, [1, 2, 3], first=10, computed=7, count=2, rows=2),
        )
    )
    assert pack(plan, KVGeometry(4, (GROUP,))).logit_rows.tolist() == [1, 2, 3, 6, 7]


def test_blocks_are_copied_in_every_group() -> None:
    share = scheduled(2, [3], first=0, computed=1, count=1)
    step = pack(StepPlan((share,), block_copies=((4, 5), (6, 7))), KVGeometry(4, (GROUP,) * 2))
    assert step.block_copies.tolist() == [[0, 4, 5], [1, 4, 5], [0, 6, 7], [1, 6, 7]]


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
        count = rng.choice([1, known - computed, rng.randint(1, known - computed)])
        is_whole = computed + count == known
        drafted = tuple(range(7, 7 + rng.choice([0, 1, 5]))) if is_whole else ()
        count += len(drafted)
        table = [rng.randint(1, 10**6) for _ in range(-(-(known + 5) // block_size))]
        items.append(
            scheduled(
                known,
                table,
                first=rng.randint(0, 10**6),
                computed=computed,
                count=count,
                rows=rng.choice([0, 1, count]),
                drafted=drafted,
            )
        )
    copies = tuple((rng.randint(1, 99), rng.randint(1, 99)) for _ in range(rng.choice([0, 2])))
    plan = StepPlan(tuple(items), block_copies=copies)
    kv = KVGeometry(block_size, (GROUP,) * num_groups)
    assert_same(pack(plan, kv), by_hand(plan, kv))
