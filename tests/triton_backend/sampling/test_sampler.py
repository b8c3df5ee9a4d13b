"""The sampler: the id of the oracle, from however many candidates, and whoever else is in the batch."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.artifact.step import StepResult
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from tests.triton_backend.oracle import pick
from triton_backend.sampling.sampler import Sampler
from triton_backend.sequence import Sequence

VOCAB = 300


def sampler(num_candidates: int = 64, vocab_size: int = VOCAB) -> Sampler:
    return Sampler(vocab_size=vocab_size, num_candidates=num_candidates)


def sample(rows: np.ndarray, sequences: list[Sequence], num_candidates: int) -> list[int | None]:
    chosen = sampler(num_candidates, rows.shape[1])
    asks = chosen.asks(sequences)
    return chosen.sample(sequences, asks, result_from_rows(rows, asks))


def draw_rows(seed: int, num_rows: int) -> tuple[np.ndarray, list[Sequence]]:
    """Rows with ties, sharp or flat, and sequences of every kind to draw from them."""
    rng = random.Random(seed)  # noqa: S311
    numbers = np.random.default_rng(seed)
    rows = numbers.integers(0, 200, (num_rows, VOCAB)).astype(np.float32) / rng.choice([2, 8, 50])
    sequences = []
    for index in range(num_rows):
        sequence = make_sequence(
            f"r{index}",
            rng.randint(1, 9),
            temperature=rng.choice([0, 0.3, 0.8, 1.5, 100]),
            top_k=rng.choice([0, 0, 1, 3, 70, VOCAB - 1, VOCAB, 5000]),
            top_p=rng.choice([1.0, 0.95, 0.5, 0.11, rng.random()]),
            seed=rng.getrandbits(60),
            min_tokens=rng.choice([0, 0, 2]),
            stop_token_ids=tuple(rng.sample(range(VOCAB), 5)),
        )
        sequence.token_ids.extend([0] * rng.randint(0, 3))
        sequences.append(sequence)
    return rows, sequences


def oracle(row: np.ndarray, sequence: Sequence) -> int:
    params = sequence.request.params
    logits = row.tolist()
    if sequence.num_generated < params.min_tokens:
        for token_id in params.stop_token_ids:
            logits[token_id] = -np.inf
    return pick(logits, params, seed=sequence.seed, position=sequence.num_known)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_every_number_of_candidates_gives_the_id_of_the_oracle(seed: int) -> None:
    rows, sequences = draw_rows(seed, 6)
    expected = [oracle(row, sequence) for row, sequence in zip(rows, sequences, strict=True)]
    for num_candidates in (1, 2, 64, VOCAB, 1000):
        assert sample(rows, sequences, num_candidates) == expected


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), num_candidates=st.sampled_from([2, 64]))
def test_a_row_is_sampled_alone_as_beside_others(seed: int, num_candidates: int) -> None:
    rows, sequences = draw_rows(seed, 9)
    together = sample(rows, sequences, num_candidates)
    alone = [
        sample(rows[row : row + 1], sequences[row : row + 1], num_candidates)[0] for row in range(9)
    ]
    assert together == alone


def test_ids_are_drawn_as_often_as_their_probability_says() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    counts = [0] * 4
    sequence = make_sequence("a", 1, temperature=1.0, seed=3)
    for _ in range(4000):
        sequence.token_ids.append(0)  # another position, another number
        (token_id,) = sample(logits, [sequence], 64)
        assert token_id is not None
        counts[token_id] += 1
    assert np.array(counts) / 4000 == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_greedy_rows_ask_for_no_candidates() -> None:
    asks = sampler().asks([make_sequence("a", 1), make_sequence("b", 1, temperature=1e-4)])
    assert (asks.num_candidates, asks.temperatures.tolist()) == (0, [0, 0])


def test_one_drawn_row_asks_candidates_and_its_own_normaliser() -> None:
    asks = sampler(17).asks([make_sequence("a", 1), make_sequence("b", 1, temperature=0.5)])
    assert (asks.num_candidates, asks.temperatures.tolist()) == (17, [0, 0.5])


def test_a_step_without_logit_rows_samples_nothing() -> None:
    assert sample(np.zeros((0, 10), np.float32), [], 64) == []


def test_greedy_ties_go_to_the_lower_id() -> None:
    assert sample(np.array([[1, 5, 5, 2]], np.float32), [make_sequence("a", 1)], 64) == [1]


@pytest.mark.parametrize(
    ("params", "num_rows"),
    [
        ({"temperature": 0}, 0),
        ({"temperature": 1.0, "top_k": 8}, 0),
        ({"temperature": 1.0, "top_p": 0.5}, 0),
        ({"temperature": 1.0}, 0),
        ({"temperature": 100.0}, 1),
        ({"temperature": 100.0, "top_k": 200}, 1),
    ],
)
def test_the_full_row_is_read_only_where_candidates_cannot_decide(
    params: dict[str, Any], num_rows: int
) -> None:
    rows = -np.arange(VOCAB, dtype=np.float32)[None] / 4
    sequences = [make_sequence("a", 1, seed=5, **params)]
    chosen = sampler(32)
    asks = chosen.asks(sequences)
    result = result_from_rows(rows, asks)
    read: list[int] = []

    def full_row(row: int) -> np.ndarray:
        read.append(row)
        return result.full_row(row)

    watched: StepResult = replace(result, full_row=full_row)
    (token_id,) = chosen.sample(sequences, asks, watched)
    assert token_id == oracle(rows[0], sequences[0])
    assert len(read) == num_rows


def test_a_wide_row_is_searched_in_growing_parts() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(1, 20_000)).astype(np.float32)
    for seed in range(12):
        sequence = make_sequence("a", 1, temperature=1.0, seed=seed)
        assert sample(rows, [sequence], 64) == [oracle(rows[0], sequence)]


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_row_that_is_no_number_fails_alone(wrong: float) -> None:
    rows = np.array([[1, 2, 3], [1, wrong, 3], [3, 2, 1]], np.float32)
    sequences = [make_sequence(f"r{row}", 1, temperature=0.5, seed=row) for row in range(3)]
    ids = sample(rows, sequences, 64)
    assert ids[1] is None
    assert [ids[0], ids[2]] == [oracle(rows[row], sequences[row]) for row in (0, 2)]


def test_minus_infinity_is_a_logit_that_is_never_drawn() -> None:
    rows = np.array([[-np.inf, 0, -np.inf, 0]], np.float32)
    sequence = make_sequence("a", 1, temperature=100.0)
    drawn = set()
    for _ in range(50):
        sequence.token_ids.append(0)
        drawn |= set(sample(rows, [sequence], 64))
    assert drawn == {1, 3}
