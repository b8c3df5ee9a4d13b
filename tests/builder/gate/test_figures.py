"""Divergence, agreement and perplexity, against numbers worked out by hand and by plain numpy."""

import numpy as np
import pytest

from builder.gate.figures import compare, judge, summed

RANDOM = np.random.default_rng(3)


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def rows(*lines: list[float]) -> np.ndarray:
    return np.array(lines, np.float32)


def test_likelihoods_are_those_of_a_softmax() -> None:
    likelihoods, choices = judge(rows([0, 1, 3], [1000, 0, 0]), np.array([1, 0], np.int32))
    assert likelihoods == pytest.approx([1 - np.log(1 + np.e + np.e**3), 0])
    assert choices.tolist() == [2, 0]


def test_the_divergence_of_two_coins_is_that_of_the_textbook() -> None:
    fair, loaded = rows([0, 0]), rows([np.log(3), 0])
    found = compare(fair, loaded, np.array([0], np.int32))
    expected = 0.5 * np.log(0.5 / 0.75) + 0.5 * np.log(0.5 / 0.25)
    assert found.divergences == pytest.approx([expected], abs=1e-6)
    assert np.exp(found.log_likelihoods) == pytest.approx([0.75])
    assert np.exp(found.reference_log_likelihoods) == pytest.approx([0.5])


def test_the_divergence_is_that_from_the_reference_and_not_the_other_way() -> None:
    one, other = rows([4, 0, 0]), rows([0, 1, 0])
    coming = np.array([0], np.int32)
    there, back = (compare(*pair, coming).divergences[0] for pair in ((one, other), (other, one)))
    p, q = softmax(one)[0], softmax(other)[0]
    assert there == pytest.approx(float((p * np.log(p / q)).sum()), abs=1e-6)
    assert back != pytest.approx(there, abs=0.01)


def test_many_random_rows_agree_with_plain_numpy_in_float64() -> None:
    reference = RANDOM.normal(size=(20, 500)).astype(np.float32) * 4
    given = reference + RANDOM.normal(size=(20, 500)).astype(np.float32) / 5
    coming = RANDOM.integers(0, 500, 20).astype(np.int32)
    found = compare(reference, given, coming)
    p, q = softmax(reference), softmax(given)
    assert found.divergences == pytest.approx((p * np.log(p / q)).sum(axis=1), abs=1e-6)
    assert found.log_likelihoods == pytest.approx(np.log(q[np.arange(20), coming]), abs=1e-5)
    assert found.agreements.tolist() == (p.argmax(axis=1) == q.argmax(axis=1)).tolist()


def test_equal_rows_diverge_by_exactly_nothing() -> None:
    same = RANDOM.normal(size=(8, 1000)).astype(np.float32) * 10
    found = compare(same, same.copy(), np.zeros(8, np.int32))
    assert found.divergences.tolist() == [0] * 8
    assert found.agreements.all()


def test_a_constant_added_to_all_logits_changes_nothing() -> None:
    same = RANDOM.normal(size=(4, 50)).astype(np.float32)
    found = compare(same, same + np.float32(8), np.zeros(4, np.int32))
    assert found.divergences == pytest.approx([0] * 4, abs=1e-6)


def test_large_logits_overflow_nowhere() -> None:
    found = compare(rows([3e4, 0, -3e4]), rows([0, 3e4, -3e4]), np.array([1], np.int32))
    assert found.divergences == pytest.approx([3e4])
    assert found.log_likelihoods.tolist() == [0]


def test_figures_of_pieces_are_those_of_all_tokens_together() -> None:
    reference = RANDOM.normal(size=(200, 30)).astype(np.float32)
    given = reference + RANDOM.normal(size=(200, 30)).astype(np.float32) / 3
    coming = RANDOM.integers(0, 30, 200).astype(np.int32)
    whole = summed([compare(reference, given, coming)])
    cuts = [slice(0, 7), slice(7, 150), slice(150, 200)]
    pieces = summed([compare(reference[cut], given[cut], coming[cut]) for cut in cuts])
    assert pieces == whole
    found = compare(reference, given, coming)
    assert whole.kl_mean == pytest.approx(found.divergences.mean())
    assert whole.kl_p99 == pytest.approx(np.sort(found.divergences)[-3:-1].mean(), rel=0.05)
    assert whole.perplexity == pytest.approx(np.exp(-found.log_likelihoods.mean()))
    ratio = whole.perplexity / whole.reference_perplexity
    assert whole.perplexity_ratio == pytest.approx(ratio)
    assert whole.agreement == found.agreements.mean()


def test_figures_are_finite_however_bad_both_engines_are() -> None:
    loud = rows([3e38, -3e38, 0], [3e38, -3e38, -3e38])
    other = rows([-3e38, 3e38, 0], [-3e38, 0, 3e38])
    coming = np.array([1, 1], np.int32)
    found = summed([compare(loud, other, coming)])
    shown = (found.kl_mean, found.kl_p99, found.perplexity, found.reference_perplexity)
    assert np.isfinite((*shown, found.perplexity_ratio)).all()
    assert found.kl_mean > 1e30


def test_a_ratio_of_perplexities_that_no_float_holds_is_still_theirs() -> None:
    near, far = rows([1000, 0]), rows([1001, 0])
    found = summed([compare(near, far, np.array([1], np.int32))])
    assert found.perplexity == found.reference_perplexity
    assert found.perplexity_ratio == pytest.approx(np.e)
