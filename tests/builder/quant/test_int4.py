"""The two forms of 4 bits: round trip, corner cases, and that the search for scales pays."""

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from builder.checkpoint.groups import spread
from builder.quant import int4, uint4

FORMS = pytest.mark.parametrize("rules", [int4, uint4], ids=lambda rules: rules.NAME)
WEIGHTS = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=80),
    elements=st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False),
)


def normal(size_out: int = 40, size_in: int = 100, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((size_out, size_in), dtype=np.float32)


def squared_error(rules: ModuleType, weight: np.ndarray, group: int) -> np.ndarray:
    """Give the squared error of each weight."""
    return (rules.unpack(*rules.pack(weight, group), group).astype(np.float64) - weight) ** 2


@FORMS
@given(weight=WEIGHTS)
def test_the_error_of_a_group_is_at_most_that_of_rounding_to_its_widest_step(
    rules: ModuleType, weight: np.ndarray
) -> None:
    error = squared_error(rules, weight, 32)
    for first in range(0, weight.shape[1], 32):
        part = weight[:, first : first + 32].astype(np.float64)
        low, high = np.minimum(part.min(axis=1), 0), np.maximum(part.max(axis=1), 0)
        # A zero point is rounded, and the largest positive weight of int4 may be cut by a step.
        step = (high - low) / 15 if rules is uint4 else np.maximum(high, -low) / 8
        bound = part.shape[1] * step**2 * 1.01
        assert (error[:, first : first + 32].sum(axis=1) <= bound).all()


@FORMS
@pytest.mark.parametrize("group", [32, 64, 128])
def test_parts_have_a_number_per_weight_and_one_of_each_other_per_group(
    rules: ModuleType, group: int
) -> None:
    packed, *rest = rules.pack(normal(5, 130), group)
    assert packed.shape == (5, 130)
    assert packed.dtype == {int4: ml_dtypes.int4, uint4: ml_dtypes.uint4}[rules]
    assert all(part.shape == (5, -(-130 // group)) for part in rest)
    assert len(rest) == 1 + rules.HAS_ZERO_POINTS


@FORMS
def test_a_group_of_zeros_gives_back_exact_zeros(rules: ModuleType) -> None:
    weight = np.zeros((3, 64), np.float32)
    weight[1, 40] = 2.0
    got = rules.unpack(*rules.pack(weight))
    np.testing.assert_allclose(got, weight, rtol=1e-6)
    assert not got[0].any()
    assert not got[1, :32].any()


@FORMS
@pytest.mark.parametrize("group", [32, 64, 128])
def test_the_search_leaves_less_error_than_the_widest_step(
    rules: ModuleType, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight = normal(64, 512)
    searched = squared_error(rules, weight, group).mean()
    monkeypatch.setattr(rules, "STRETCHES", (1.0,))
    assert searched < 0.97 * squared_error(rules, weight, group).mean()


@FORMS
def test_smaller_groups_leave_less_error(rules: ModuleType) -> None:
    errors = [squared_error(rules, normal(64, 512), group).mean() for group in (32, 64, 128)]
    assert errors == sorted(errors)


def test_a_zero_point_pays_where_weights_lie_on_one_side() -> None:
    weight = np.abs(normal(64, 512))
    assert squared_error(uint4, weight, 32).mean() < 0.4 * squared_error(int4, weight, 32).mean()


@FORMS
def test_numbers_that_fit_come_back_as_they_are(rules: ModuleType) -> None:
    steps = np.random.default_rng(0).integers(-8, 8, (20, 64)).astype(np.float32)
    steps[:, ::32], steps[:, 1::32] = -8, 7
    weight = steps * np.float32(0.25)
    np.testing.assert_allclose(rules.unpack(*rules.pack(weight)), weight, rtol=1e-6)


def test_spread_gives_a_part_to_each_weight() -> None:
    part = np.array([[1, 2], [3, 4]])
    assert spread(part, 2, 3).tolist() == [[1, 1, 2], [3, 3, 4]]
    assert spread(part[:, :1], 0, 3).tolist() == [[1, 1, 1], [3, 3, 3]]
