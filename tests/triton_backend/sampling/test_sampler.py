"""The sampler: the id of the oracle, from however many candidates, and whoever else is in the batch."""

import random
from collections import abc
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builder.artifact.step import Float32, Int32, StepResult
from builder.errors import RequestError
from builder.targets.executor import result_from_rows
from tests.triton_backend.making import make_sequence
from tests.triton_backend.oracle import edit, pick
from triton_backend.request import SamplingParams
from triton_backend.rows import Drawn, LogitRow, NoToken
from triton_backend.sampling.sampler import Sampler
from triton_backend.sequence import Sequence

VOCAB = 300


def sampler(num_candidates: int = 64, vocab_size: int = VOCAB) -> Sampler:
    return Sampler(vocab_size=vocab_size, num_candidates=num_candidates)


def sample(
    logits: np.ndarray, rows: list[LogitRow] | list[Sequence], num_candidates: int
) -> list[Drawn]:
    """Sample rows, or one row behind each sequence."""
    chosen = sampler(num_candidates, logits.shape[1])
    rows = [row if isinstance(row, LogitRow) else LogitRow(row) for row in rows]
    asks = chosen.asks(rows)
    return chosen.sample(rows, asks, result_from_rows(logits, asks))


def rows_of(*sequences: Sequence) -> list[LogitRow]:
    return [LogitRow(sequence) for sequence in sequences]


def draw_rows(seed: int, num_rows: int) -> tuple[np.ndarray, list[LogitRow]]:
    """Logits with ties, sharp or flat, and rows of every kind to draw from them."""
    rng = random.Random(seed)  # noqa: S311
    numbers = np.random.default_rng(seed)
    logits = numbers.integers(-90, 110, (num_rows, VOCAB)).astype(np.float32)
    logits /= rng.choice([2, 8, 50])
    rows = []
    for index in range(num_rows):
        sequence = make_sequence(
            f"r{index}",
            rng.randint(1, 9),
            temperature=rng.choice([0, 0.3, 0.8, 1.5, 100]),
            top_k=rng.choice([0, 0, 1, 3, 70, VOCAB - 1, VOCAB, 5000]),
            top_p=rng.choice([1.0, 0.95, 0.5, 0.11, rng.random()]),
            min_p=rng.choice([0.0, 0.0, 1.0, 0.3, rng.random() ** 4]),
            seed=rng.getrandbits(60),
            min_tokens=rng.choice([0, 0, 2]),
            stop_token_ids=tuple(rng.sample(range(VOCAB), 5)),
            **draw_edits(rng),
        )
        sequence.choice = rng.randrange(3)
        likely = np.argsort(-logits[index])[:6].tolist()
        sequence.token_ids.extend(rng.choices([0, 3, *likely], k=rng.randint(0, 5)))
        drafted = tuple(rng.choices(likely, k=rng.choice([0, 0, 1, 3])))
        rows.append(LogitRow(sequence, drafted))
    return logits, rows


def draw_edits(rng: random.Random) -> dict[str, Any]:
    """Parameters of links on logits, most of them off."""
    biased = rng.sample(range(VOCAB), rng.choice([0, 0, 1, 40]))
    words = [tuple(rng.choices(range(10), k=rng.choice([1, 2, 3]))) for _ in range(60)]
    return {
        "logit_bias": tuple((each, rng.choice([-100, -1.5, 0.3, 7])) for each in biased),
        "bad_words": tuple(words) if rng.random() < 0.3 else (),
        "repetition_penalty": rng.choice([1.0, 1.0, 1.3, 0.7]),
        "presence_penalty": rng.choice([0.0, 0.0, 1.1, -0.4]),
        "frequency_penalty": rng.choice([0.0, 0.0, 0.6, -0.2]),
    }


def oracle(logits: np.ndarray, row: LogitRow | Sequence) -> int:
    row = row if isinstance(row, LogitRow) else LogitRow(row)
    sequence, params = row.sequence, row.sequence.request.params
    known = [*sequence.token_ids, *row.drafted]
    edited = edit(
        logits.tolist(), params, known, sequence.num_prompt, frozenset(params.stop_token_ids)
    )
    return pick(edited, params, seed=sequence.seed, position=len(known), choice=sequence.choice)


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_every_number_of_candidates_gives_the_id_of_the_oracle(seed: int) -> None:
    logits, rows = draw_rows(seed, 6)
    expected = [oracle(line, row) for line, row in zip(logits, rows, strict=True)]
    for num_candidates in (1, 2, 64, VOCAB, 1000):
        assert sample(logits, rows, num_candidates) == expected


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32), num_candidates=st.sampled_from([2, 64]))
def test_a_row_is_sampled_alone_as_beside_others(seed: int, num_candidates: int) -> None:
    logits, rows = draw_rows(seed, 9)
    together = sample(logits, rows, num_candidates)
    alone = [sample(logits[i : i + 1], rows[i : i + 1], num_candidates)[0] for i in range(9)]
    assert together == alone


def test_ids_are_drawn_as_often_as_their_probability_says() -> None:
    logits = np.log(np.array([[0.5, 0.3, 0.15, 0.05]], np.float32))
    counts = [0] * 4
    sequence = make_sequence("a", 1, temperature=1.0, seed=3)
    for _ in range(4000):
        sequence.token_ids.append(0)  # another position, another number
        (token_id,) = sample(logits, [sequence], 64)
        assert isinstance(token_id, int)
        counts[token_id] += 1
    assert np.array(counts) / 4000 == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_greedy_rows_ask_for_no_candidates() -> None:
    asks = sampler().asks(rows_of(make_sequence("a", 1), make_sequence("b", 1, temperature=1e-4)))
    assert (asks.num_candidates, asks.temperatures.tolist()) == (0, [0, 0])


def test_one_drawn_row_asks_candidates_and_its_own_normaliser() -> None:
    asks = sampler(17).asks(rows_of(make_sequence("a", 1), make_sequence("b", 1, temperature=0.5)))
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
def test_more_candidates_are_asked_for_only_where_those_at_hand_cannot_decide(
    params: dict[str, Any], num_rows: int
) -> None:
    rows = -np.arange(VOCAB, dtype=np.float32)[None] / 4
    asked = rows_of(make_sequence("a", 1, seed=5, **params))
    chosen = sampler(32)
    asks = chosen.asks(asked)
    result = result_from_rows(rows, asks)
    ranked: list[int] = []

    def likeliest(places: abc.Sequence[int], num_candidates: int) -> tuple[Int32, Float32]:
        ranked.extend(places)
        return result.likeliest(places, num_candidates)

    watched: StepResult = replace(result, likeliest=likeliest)
    (token_id,) = chosen.sample(asked, asks, watched)
    assert token_id == oracle(rows[0], asked[0])
    assert len(ranked) == num_rows


def test_wide_rows_are_searched_together_in_growing_parts() -> None:
    rows = np.random.default_rng(1).normal(size=(12, 20_000)).astype(np.float32)
    sequences = [make_sequence(f"r{seed}", 1, temperature=1.0, seed=seed) for seed in range(12)]
    expected = [oracle(row, each) for row, each in zip(rows, sequences, strict=True)]
    assert sample(rows, sequences, 64) == expected


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_row_that_is_no_number_fails_alone(wrong: float) -> None:
    rows = np.array([[1, 2, 3], [1, wrong, 3], [3, 2, 1]], np.float32)
    sequences = [make_sequence(f"r{row}", 1, temperature=0.5, seed=row) for row in range(3)]
    ids = sample(rows, sequences, 64)
    assert ids[1] is NoToken.BROKEN
    assert [ids[0], ids[2]] == [oracle(rows[row], sequences[row]) for row in (0, 2)]


@pytest.mark.parametrize("temperature", [0, 1.0])
@pytest.mark.parametrize(
    ("params", "broken", "why"),
    [
        ({}, True, NoToken.BROKEN),
        ({"logit_bias": tuple((each, -100.0) for each in range(20))}, True, NoToken.BROKEN),
        ({"logit_bias": tuple((each, -100.0) for each in range(20))}, False, NoToken.NOTHING_LEFT),
        ({"bad_words": tuple((each,) for each in range(20))}, False, NoToken.NOTHING_LEFT),
    ],
)
def test_what_the_executor_broke_is_told_from_what_a_request_bans(
    params: dict[str, Any], broken: bool, why: NoToken, temperature: float
) -> None:
    logits = np.arange(20, dtype=np.float32)[None]
    if broken:
        logits[0, 7] = np.nan
    row = make_sequence("a", 1, temperature=temperature, seed=1, **params)
    assert sample(logits, rows_of(row), 4) == [why]


def test_minus_infinity_is_a_logit_that_is_never_drawn() -> None:
    rows = np.array([[-np.inf, 0, -np.inf, 0]], np.float32)
    sequence = make_sequence("a", 1, temperature=100.0)
    drawn = set()
    for _ in range(50):
        sequence.token_ids.append(0)
        drawn |= set(sample(rows, [sequence], 64))
    assert drawn == {1, 3}


def test_choices_of_one_seed_draw_from_streams_of_their_own() -> None:
    rows = np.zeros((8, 5000), np.float32)
    siblings = [make_sequence("a", 1, temperature=1.0, seed=7) for _ in range(8)]
    for choice, sequence in enumerate(siblings):
        sequence.choice = choice
    ids = sample(rows, siblings, 64)
    assert len(set(ids)) == 8
    assert ids == [oracle(rows[0], sequence) for sequence in siblings]


def test_a_row_behind_drafts_is_drawn_at_its_own_position() -> None:
    logits = np.zeros((2, 5000), np.float32)
    drafted, later = (make_sequence("a", 2, temperature=1.0, seed=7) for _ in range(2))
    later.token_ids.extend([8, 9])
    ids = sample(logits, [LogitRow(drafted, (8, 9)), LogitRow(later)], 64)
    assert ids[0] == ids[1]


def test_a_row_whose_token_is_known_asks_for_no_draw() -> None:
    rows = [LogitRow(make_sequence("a", 4, temperature=1.0, min_tokens=3), (), 2)]
    assert sampler().asks(rows).temperatures.tolist() == [0]


def test_without_drawn_rows_a_known_token_is_not_edited() -> None:
    sequence = make_sequence("a", 4, logit_bias=((1, -100),))
    assert sample(np.array([[0, 5, 1]], np.float32), [LogitRow(sequence, (), 2)], 4) == [1]


@pytest.mark.parametrize(
    ("params", "place"),
    [
        ({"logit_bias": ((1, 1.0), (VOCAB, 1.0))}, "logit_bias[1]"),
        ({"bad_words": ((1,), (2, VOCAB))}, "bad_words[1][1]"),
        ({"logits_processors": ("no such",)}, "no such"),
    ],
)
def test_what_no_row_could_be_sampled_with_is_refused(params: dict[str, Any], place: str) -> None:
    sampler().check(SamplingParams(logit_bias=((VOCAB - 1, 1.0),), bad_words=((VOCAB - 1,),)))
    with pytest.raises(RequestError) as refused:
        sampler().check(SamplingParams(**params))
    assert place in str(refused.value)
