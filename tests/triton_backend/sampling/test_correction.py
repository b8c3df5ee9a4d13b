"""A corrected log-sum-exp is never further off than it says, and is given up where it tells too little."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from triton_backend.sampling.correction import correct


def logsumexp(row: np.ndarray, temperature: float) -> float:
    peak = float(row.max())
    sums = np.exp((row.astype(np.float64) - peak) / temperature).sum()
    return float(np.float32(peak / temperature + np.log(sums)))


@given(
    seed=st.integers(0, 2**32),
    temperature=st.sampled_from([0.01, 0.3, 1.0, 5.0, 100.0]),
    scale=st.sampled_from([0.1, 3.0, 40.0]),
    num_changed=st.integers(0, 30),
)
def test_the_true_one_is_within_the_slack(
    seed: int, temperature: float, scale: float, num_changed: int
) -> None:
    random = np.random.default_rng(seed)
    own = (random.normal(size=200) * scale).astype(np.float32)
    edited = own.copy()
    changed = random.choice(200, num_changed, replace=False)
    edited[changed] += random.choice([-np.inf, -1.0, 0.5, 20.0], num_changed)
    told = correct(logsumexp(own, temperature), own, edited, temperature)
    if told is not None:
        assert abs(told[0] - logsumexp(edited, temperature)) <= told[1] < 1


def test_by_hand() -> None:
    own = np.log(np.array([5, 1, 1, 1, 1, 1], np.float32))
    edited = own.copy()
    edited[1] = np.log(3)
    told = correct(float(np.log(10)), own, edited, 1.0)
    assert told is not None
    assert told[0] == pytest.approx(np.log(12))
    assert told[1] < 1e-3


def test_an_unchanged_row_keeps_its_own() -> None:
    own = np.zeros(8, np.float32)
    told = correct(float(np.log(8)), own, own, 1.0)
    assert told is not None
    assert told[0] == pytest.approx(np.log(8))


def test_what_is_left_of_a_ban_on_nearly_all_of_the_mass_is_summed_anew() -> None:
    own = np.array([100, *[0] * 9], np.float32)
    edited = own.copy()
    edited[0] = -np.inf
    assert correct(logsumexp(own, 1.0), own, edited, 1.0) is None


def test_a_row_that_changed_all_over_is_summed_anew() -> None:
    own = np.zeros(8, np.float32)
    assert correct(float(np.log(8)), own, own + 1, 1.0) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_what_is_no_finite_number_is_summed_anew(wrong: float) -> None:
    own = np.zeros(8, np.float32)
    edited = own.copy()
    edited[3] = wrong
    assert correct(float(np.log(8)), own, edited, 1.0) is None
    assert correct(wrong, own, own, 1.0) is None


def test_a_large_sum_is_only_as_exact_as_float32() -> None:
    own = np.array([1000, *[0] * 9], np.float32)
    told = correct(1000 / 0.01, own, own, 0.01)
    assert told is not None
    assert told[1] > 2 * np.spacing(np.float32(1e5))
