"""Cutting a step: every token once, in order, and no call larger than allowed."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.step import StepTensors
from builder.targets.portable.parts import FREE_POSITIONS, MAX_PADDING, parts

BLOCK_SIZE = 16


def make_step(sequences: list[tuple[int, int]]) -> StepTensors:
    """Lay out sequences of (earlier tokens, tokens of this step); token ids number the tokens."""
    counts = [count for _, count in sequences]
    lengths = [earlier + count for earlier, count in sequences]
    total = sum(counts)
    width = max(-(-length // BLOCK_SIZE) for length in lengths)
    return StepTensors(
        token_ids=np.arange(total, dtype=np.int32),
        positions=np.concatenate([np.arange(e, e + c) for e, c in sequences]).astype(np.int32),
        query_start=np.cumsum([0, *counts]).astype(np.int32),
        seq_lens=np.array(lengths, np.int32),
        block_tables=np.arange(len(sequences) * width, dtype=np.int32).reshape(1, -1, width),
        slot_mapping=np.arange(total, dtype=np.int32)[None],
        logit_rows=(np.cumsum(counts) - 1).astype(np.int32),
        block_copies=np.zeros((0, 3), np.int32),
    )


SEQUENCES = st.lists(st.tuples(st.integers(0, 9000), st.integers(1, 300)), min_size=1, max_size=12)


@given(SEQUENCES, st.sampled_from([1, 100, 10_000, 1 << 20]))
def test_every_token_is_computed_once_and_after_those_before_it(
    sequences: list[tuple[int, int]], max_area: int
) -> None:
    step = make_step(sequences)
    seen: list[int] = []
    rows: list[int] = []
    for part, wanted in parts(step, block_size=BLOCK_SIZE, max_area=max_area):
        seen += part.token_ids.tolist()
        rows += wanted.tolist()
        assert (
            part.token_ids[part.logit_rows].tolist()
            == step.token_ids[step.logit_rows[wanted]].tolist()
        )
        ends = part.query_start[1:] - 1
        assert (part.positions[ends] + 1 == part.seq_lens).all()
    assert sorted(seen) == step.token_ids.tolist()
    assert sorted(rows) == list(range(len(step.logit_rows)))
    place = {token: index for index, token in enumerate(seen)}
    for start, stop in zip(step.query_start[:-1], step.query_start[1:], strict=True):
        order = [place[token] for token in range(start, stop)]
        assert order == sorted(order)


@given(SEQUENCES, st.sampled_from([1, 100, 10_000, 1 << 20]))
def test_no_call_of_several_pieces_is_larger_than_allowed(
    sequences: list[tuple[int, int]], max_area: int
) -> None:
    for part, _ in parts(make_step(sequences), block_size=BLOCK_SIZE, max_area=max_area):
        counts, lengths = np.diff(part.query_start), part.seq_lens
        size, count, length = len(lengths), counts.max(), lengths.max()
        assert count * length <= max_area or count == 1
        if size > 1:
            assert size * count * length <= max_area
            assert size * count <= MAX_PADDING * counts.sum()
            assert size * length <= MAX_PADDING * lengths.sum() + FREE_POSITIONS
        assert part.block_tables.shape[2] == -(-length // BLOCK_SIZE)


def test_like_sequences_share_one_call() -> None:
    step = make_step([(100, 1)] * 32)
    ((part, wanted),) = parts(step, block_size=BLOCK_SIZE, max_area=1 << 22)
    assert part.num_seqs == 32
    assert wanted.tolist() == list(range(32))


def test_a_long_prompt_does_not_make_single_tokens_wide() -> None:
    found = list(
        parts(make_step([(0, 256), *[(50, 1)] * 31]), block_size=BLOCK_SIZE, max_area=1 << 22)
    )
    assert [part.num_tokens for part, _ in found] == [31, 256]
