"""Log-probabilities against a plain softmax, and that they belong to the model, not to the sampling."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.artifact.step import RowAsks
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from triton_backend.rows import LogitRow
from triton_backend.sampling.logprobs import asked_logprobs, logprobs_of

VOCAB = 300


def draw_row(seed: int) -> np.ndarray:
    """A row with many ties."""
    numbers = np.random.default_rng(seed).integers(0, 60, VOCAB)
    return (numbers / 4).astype(np.float32)


def expected(row: np.ndarray) -> list[float]:
    """Plain softmax, in Python's own numbers."""
    mass = math.fsum(math.exp(logit) for logit in row.tolist())
    return [logit - math.log(mass) for logit in row.tolist()]


def order(row: np.ndarray) -> list[int]:
    return sorted(range(len(row)), key=lambda token_id: (-row[token_id], token_id))


@given(seed=st.integers(0, 2**32), token_id=st.integers(0, VOCAB - 1), num_top=st.integers(0, 20))
def test_they_are_those_of_a_plain_softmax(seed: int, token_id: int, num_top: int) -> None:
    row = draw_row(seed)
    told = logprobs_of(row, token_id, num_top)
    every = expected(row)
    assert told.logprob == pytest.approx(every[token_id], abs=1e-9)
    assert told.top_ids == tuple(order(row)[:num_top])
    assert told.top_logprobs == pytest.approx([every[i] for i in told.top_ids], abs=1e-9)


@given(seed=st.integers(0, 2**32), token_id=st.integers(0, VOCAB - 1))
def test_the_rank_is_the_place_in_the_order_of_the_top(seed: int, token_id: int) -> None:
    row = draw_row(seed)
    assert order(row)[logprobs_of(row, token_id, 0).rank - 1] == token_id


def test_all_probabilities_add_up_to_one() -> None:
    row = draw_row(3)
    told = [logprobs_of(row, token_id, 0).logprob for token_id in range(VOCAB)]
    assert math.fsum(map(math.exp, told)) == pytest.approx(1, abs=1e-12)


def test_more_than_the_vocabulary_gives_the_vocabulary() -> None:
    assert logprobs_of(np.array([1, 3, 2], np.float32), 0, 20).top_ids == (1, 2, 0)


def test_minus_infinity_stays_and_large_logits_do_not_overflow() -> None:
    told = logprobs_of(np.array([3e38, -np.inf, 3e38], np.float32), 1, 3)
    assert (told.logprob, told.rank) == (-math.inf, 3)
    assert told.top_logprobs[:2] == pytest.approx([-math.log(2)] * 2)


def test_a_row_that_is_no_number_gives_no_number() -> None:
    told = logprobs_of(np.array([1, np.nan, 3], np.float32), 0, 1)
    assert math.isnan(told.logprob)


def test_only_rows_that_ask_and_got_a_token_are_read() -> None:
    read: list[int] = []
    rows = np.stack([draw_row(seed) for seed in range(3)])

    def full_row(row: int) -> np.ndarray:
        read.append(row)
        return rows[row]

    result = result_from_rows(rows, RowAsks(0, np.zeros(3, np.float32)))
    watched = replace(result, full_row=full_row)
    sequences = [
        make_sequence("silent", 1),
        make_sequence("asks", 1, logprobs=2),
        make_sequence("failed", 1, logprobs=0),
    ]
    told = asked_logprobs([LogitRow(each) for each in sequences], [1, 2, None], watched)
    assert told == {1: logprobs_of(rows[1], 2, 2)}
    assert read == [1]


def test_rows_in_a_prompt_are_told_of_the_token_that_follows_there() -> None:
    logits = np.stack([draw_row(seed) for seed in range(3)])
    result = result_from_rows(logits, RowAsks(0, np.zeros(3, np.float32)))
    sequence = make_sequence("a", 3, first_token=7, prompt_logprobs=4, logprobs=1)
    rows = [LogitRow(sequence, (), 2), LogitRow(sequence, (), 1), LogitRow(sequence)]
    assert asked_logprobs(rows, [None, 5, 6], result) == {
        0: logprobs_of(logits[0], 8, 4),
        1: logprobs_of(logits[1], 9, 4),
        2: logprobs_of(logits[2], 6, 1),
    }


def test_a_prompt_that_does_not_ask_is_not_told() -> None:
    result = result_from_rows(draw_row(1)[None], RowAsks(0, np.zeros(1, np.float32)))
    row = LogitRow(make_sequence("a", 3, logprobs=1), (), 1)
    assert asked_logprobs([row], [5], result) == {}
