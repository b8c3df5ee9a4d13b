"""INT8 weights: round trip, bounds and corner cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from builder.quant import FORMATS, int8

WEIGHTS = arrays(
    np.float32,
    array_shapes(min_dims=2, max_dims=2, max_side=80),
    elements=st.floats(-(2.0**99), 2.0**99, width=32, allow_subnormal=False),
)


@given(WEIGHTS)
def test_no_weight_is_off_by_more_than_the_bound(weight: np.ndarray) -> None:
    packed, scales = int8.pack(weight)
    bound = np.repeat(int8.error_bound(scales), int8.GROUP, axis=1)[:, : weight.shape[1]]
    error = np.abs(int8.unpack(packed, scales).astype(np.float64) - weight)
    assert packed.shape == weight.shape
    assert (error <= bound).all()


def test_a_group_of_zeros_gives_back_exact_zeros() -> None:
    weight = np.zeros((3, 128), np.float32)
    weight[1, 70] = 2.0
    packed, scales = int8.pack(weight)
    np.testing.assert_array_equal(int8.unpack(packed, scales), weight)
    assert scales[0].tolist() == [0, 0]


def test_the_largest_weight_of_a_group_is_kept_to_float_precision() -> None:
    weight = np.linspace(-3, 1, 32, dtype=np.float32)[None]
    packed, scales = int8.pack(weight)
    assert packed[0, 0] == -127
    assert int8.unpack(packed, scales)[0, 0] == pytest.approx(-3.0, rel=1e-6)


def test_packing_twice_changes_nothing() -> None:
    weight = np.random.default_rng(0).standard_normal((40, 100), dtype=np.float32)
    once = int8.unpack(*int8.pack(weight))
    np.testing.assert_allclose(int8.unpack(*int8.pack(once)), once, rtol=1e-6)


@pytest.mark.parametrize("group", int8.GROUPS)
def test_every_group_has_its_own_scale(group: int) -> None:
    weight = np.random.default_rng(0).standard_normal((7, 200), dtype=np.float32)
    packed, scales = int8.pack(weight, group)
    assert scales.shape == (7, -(-200 // group) if group else 1)
    bound = np.repeat(int8.error_bound(scales), group or 200, axis=1)[:, :200]
    assert (np.abs(int8.unpack(packed, scales, group) - weight) <= bound).all()


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_names_itself_its_targets_and_its_group(name: str) -> None:
    rules = FORMATS[name]
    assert name == rules.NAME
    assert rules.TARGETS
    assert rules.GROUP in rules.GROUPS
    assert rules.HEAD in (*FORMATS, "float32")
    assert set(rules.EMULATED_ON) <= set(rules.TARGETS)
