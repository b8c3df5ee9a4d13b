"""The text that quality is judged on, and the comparison of what engines say of it."""

from pathlib import Path

import numpy as np
import pytest
from likelihood import text
from likelihood.comparison import (
    agreement,
    agreement_gain,
    estimate,
    perplexity,
    perplexity_ratio,
)
from likelihood.readings import Reading, read_all
from tokenizers import Tokenizer, models, pre_tokenizers


def reading(likelihoods: list[list[float]], choices: list[list[int]]) -> Reading:
    return Reading(np.array(likelihoods, np.float32), np.array(choices, np.int32))


def words() -> Tokenizer:
    found = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))  # noqa: S106
    found.pre_tokenizer = pre_tokenizers.Whitespace()
    return found


def test_text_is_taken_until_there_is_enough() -> None:
    assert text.take(iter(["a b", "b a", "never " * 9]), words(), 3) == [0, 1, 1]


def test_too_little_text_is_refused() -> None:
    with pytest.raises(SystemExit, match="has 2 tokens of one kind of text, 3 are asked for"):
        text.take(iter(["a b"]), words(), 3)


def test_chunks_hold_at_least_as_many_tokens_as_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(text, "licences", lambda: iter(["a " * 50]))
    monkeypatch.setattr(text, "docstrings", lambda: iter(["b " * 50]))
    words().save(str(tmp_path / "tokenizer.json"))
    chunks = text.read_chunks(tmp_path / "tokenizer.json", 30, 8)
    assert chunks.shape == (4, 8)
    assert chunks[:2].max() == 0
    assert chunks[2:].min() == 1


def test_docstrings_come_in_the_same_order_each_time() -> None:
    firsts = [[next(found) for _ in range(5)] for found in (text.docstrings(), text.docstrings())]
    assert firsts[0] == firsts[1]


def test_each_token_is_judged_by_the_row_before_it() -> None:
    chunks = np.array([[2, 0, 1, 2, 1]], np.int32)

    def foresee(chunk: text.Tokens) -> list[np.ndarray]:
        rows = 50 * np.eye(3, dtype=np.float32)[[*chunk[1:], 0]]
        return [rows[:2], rows[2:4], rows[4:]]

    found = read_all("foresee", chunks, foresee)
    assert found.choices.tolist() == [[0, 1, 2, 1]]
    assert found.log_likelihoods == pytest.approx(np.zeros((1, 4)), abs=1e-6)


def test_an_engine_compared_with_itself_differs_in_nothing() -> None:
    same = reading([[-1, -2], [-3, -4]], [[1, 2], [3, 4]])
    ratio = perplexity_ratio(same, same)
    assert (ratio.value, ratio.low, ratio.high) == (1, 1, 1)
    assert agreement(same, same).value == 1


def test_perplexity_is_of_the_mean_over_all_tokens() -> None:
    assert perplexity(reading([[-1, -3]], [[0, 0]])) == pytest.approx(np.exp(2), abs=1e-4)


def test_a_less_likely_text_has_a_higher_ratio() -> None:
    worse = reading([[-2, -2], [-3, -3]], [[1, 2], [3, 0]])
    better = reading([[-1, -1], [-3, -3]], [[1, 2], [3, 4]])
    found = perplexity_ratio(worse, better)
    assert found.value == pytest.approx(np.exp(0.5), abs=1e-4)
    assert found.low < found.value < found.high


def test_a_gain_is_counted_against_the_reference() -> None:
    reference = reading([[0, 0, 0, 0]], [[1, 2, 3, 4]])
    mine, rival = reading([[0] * 4], [[1, 2, 3, 0]]), reading([[0] * 4], [[1, 0, 0, 0]])
    assert agreement_gain(mine, rival, reference).value == 0.5


def test_the_interval_narrows_with_more_chunks() -> None:
    numbers = np.random.default_rng(0).normal(size=400)
    wide, narrow = estimate(numbers[:25]), estimate(numbers)
    assert narrow.high - narrow.low < (wide.high - wide.low) / 2
