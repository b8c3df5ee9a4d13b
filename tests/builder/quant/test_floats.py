"""FP8, NVFP4 and MXFP4: round trips within their bounds, corner cases, and the bytes of torch, ml_dtypes and modelopt."""

from types import ModuleType

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from builder.checkpoint.groups import spread
from builder.quant import FORMATS, fp8, fp8_block, fp8_dynamic, mxfp4, nvfp4
from builder.quant.floats import E2M1, E4M3, rounded
from builder.quant.validate import check_scales, check_weight

FLOATS = [rules for rules in FORMATS.values() if rules.EMULATED_ON]
FORMS = pytest.mark.parametrize("rules", FLOATS, ids=lambda rules: rules.NAME)
FINITE = st.floats(-(2.0**126), 2.0**126, width=32)
"""What is rounded up from beyond may be no float32 any more."""
WEIGHTS = arrays(np.float32, array_shapes(min_dims=2, max_dims=2, max_side=70), elements=FINITE)
E2M1_NUMBERS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)


def normal(size_out: int = 40, size_in: int = 100, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((size_out, size_in), dtype=np.float32)


@FORMS
@given(weight=WEIGHTS)
def test_no_weight_is_off_by_more_than_the_bound(rules: ModuleType, weight: np.ndarray) -> None:
    """Of the smallest numbers too; so no NaN comes out."""
    parts = rules.pack(weight)
    bound = spread(rules.error_bound(*parts[1:]), rules.GROUP, weight.shape[1])
    error = np.abs(rules.unpack(*parts).astype(np.float64) - weight)
    assert parts[0].shape == weight.shape
    # Below the smallest normal float32 a product loses bits of its own.
    assert (error <= bound.astype(np.float64) + 2.0**-126).all()


@FORMS
@given(weight=WEIGHTS)
def test_what_is_packed_is_found_right(rules: ModuleType, weight: np.ndarray) -> None:
    check_scales("w", check_weight("w", weight, rules.GROUP), rules.pack(weight))


@FORMS
def test_a_group_of_zeros_gives_back_exact_zeros(rules: ModuleType) -> None:
    weight = np.zeros((3, 128), np.float32)
    np.testing.assert_array_equal(rules.unpack(*rules.pack(weight)), weight)
    weight[1, 70] = 2.0
    np.testing.assert_allclose(rules.unpack(*rules.pack(weight)), weight, rtol=1e-6)


@FORMS
def test_packing_twice_changes_nothing(rules: ModuleType) -> None:
    once = rules.unpack(*rules.pack(normal()))
    np.testing.assert_allclose(rules.unpack(*rules.pack(once)), once, rtol=1e-6)


@FORMS
def test_rows_packed_at_once_or_apart_are_the_same(
    rules: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scale of an NVFP4 tensor is that of all its rows, however many are packed at a time."""
    weight = normal() * np.linspace(0.1, 9, 40, dtype=np.float32)[:, None]
    whole = rules.pack(weight)
    monkeypatch.setattr("builder.quant.groups.NUMBERS_AT_ONCE", 256)
    for part, again in zip(whole, rules.pack(weight), strict=True):
        assert part.tobytes() == again.tobytes()


ERRORS = {
    "int8-static": 0.0075,
    "int8-weight-only": 0.0075,
    "fp8": 0.0266,
    "fp8-dynamic": 0.0265,
    "fp8-block": 0.0266,
    "fp8-weight-only": 0.0265,
    "nvfp4": 0.0955,
    "nvfp4-weight-only": 0.0955,
    "mxfp4": 0.116,
}
"""Relative errors on normal numbers; modelopt's and llm-compressor's on a real model: 0.0265 and 0.0948."""


@FORMS
def test_the_relative_error_is_that_of_other_packers(rules: ModuleType) -> None:
    weight = normal(256, 512)
    error = rules.unpack(*rules.pack(weight)) - weight
    assert np.sqrt((error**2).sum() / (weight**2).sum()) < ERRORS[rules.NAME]


VALUES = np.concatenate(
    [
        normal(1, 100_000)[0] * 60,
        normal(1, 100_000, seed=1)[0] / 200,
        np.linspace(-500, 500, 100_001, dtype=np.float32),
    ]
)


def test_e4m3_has_the_bytes_of_torch() -> None:
    with_torch = torch.from_numpy(np.clip(VALUES, -448, 448)).to(torch.float8_e4m3fn)
    np.testing.assert_array_equal(
        rounded(VALUES, E4M3).view(np.uint8), with_torch.view(torch.uint8).numpy()
    )


def test_e2m1_is_the_nearest_of_its_eight_numbers_and_the_even_one_of_two() -> None:
    values = np.linspace(0, 8, 8 * 64 + 1, dtype=np.float32)
    distances = np.abs(values[:, None] - E2M1_NUMBERS)
    order = np.lexsort((np.arange(8) % 2 + np.zeros_like(distances), distances))[:, 0]
    got = rounded(values, E2M1)
    np.testing.assert_array_equal(got.astype(np.float32), E2M1_NUMBERS[order])
    np.testing.assert_array_equal(
        rounded(-values, E2M1).astype(np.float32), -got.astype(np.float32)
    )


def test_e8m0_has_the_bytes_of_torch() -> None:
    _, scales = mxfp4.pack(normal(64, 512) * np.float32(1e-3))
    with_torch = torch.from_numpy(scales.astype(np.float32)).to(torch.float8_e8m0fnu)
    np.testing.assert_array_equal(scales.view(np.uint8), with_torch.view(torch.uint8).numpy())


def test_an_fp8_weight_has_the_bytes_of_torch_divided_by_its_scale() -> None:
    weight = normal(64, 576)
    packed, scales = fp8_dynamic.pack(weight)
    source = torch.from_numpy(weight)
    want = source.abs().amax(dim=1, keepdim=True) / 448
    np.testing.assert_array_equal(scales, want.numpy())
    stored = (source / want).clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    np.testing.assert_array_equal(packed.view(np.uint8), stored.numpy())


def test_an_fp8_tensor_has_the_bytes_of_torch_divided_by_its_one_scale() -> None:
    weight = normal(64, 576)
    packed, scales = fp8.pack(weight)
    source = torch.from_numpy(weight)
    want = source.abs().amax() / 448
    assert set(scales.ravel().tolist()) == {want.item()}
    stored = (source / want).to(torch.float8_e4m3fn).view(torch.uint8)
    np.testing.assert_array_equal(packed.view(np.uint8), stored.numpy())


def test_a_block_of_fp8_has_the_bytes_of_torch_divided_by_its_scale_and_may_be_cut_short() -> None:
    weight = normal(200, 300) * np.linspace(0.1, 9, 200, dtype=np.float32)[:, None]
    packed, scales = fp8_block.pack(weight)
    assert scales.shape == (200, 3)
    corner = torch.from_numpy(weight[128:, 256:])
    want = corner.abs().amax() / 448
    assert set(scales[128:, 2].tolist()) == {want.item()}
    stored = (corner / want).to(torch.float8_e4m3fn).view(torch.uint8)
    np.testing.assert_array_equal(packed[128:, 256:].view(np.uint8), stored.numpy())


def test_nvfp4_scales_are_those_that_modelopt_publishes() -> None:
    """`weight_scale_2` is amax / (6 * 448); `weight_scale` E4M3 of a block's amax / (6 * that), and 1 of zeros."""
    weight = torch.from_numpy(normal(64, 576))
    weight[3, :16] = 0
    whole = weight.abs().amax() / (6 * 448)
    blocks = weight.reshape(64, 36, 16)
    scales = blocks.abs().amax(dim=2) / (6 * whole)
    scales[scales == 0] = 1
    stored = scales.to(torch.float8_e4m3fn)
    units = blocks / (stored.float() * whole)[:, :, None]
    packed, got, got_whole = nvfp4.pack(weight.numpy())
    assert got_whole == whole.numpy()
    np.testing.assert_array_equal(got.view(np.uint8), stored.view(torch.uint8).numpy())
    numbers = rounded(units.reshape(64, 576).numpy(), E2M1)
    np.testing.assert_array_equal(packed.view(np.uint8), numbers.view(np.uint8))


def test_an_mxfp4_scale_is_the_least_power_of_two_that_reaches_its_group() -> None:
    weight = np.zeros((1, 128), np.float32)
    weight[0, [0, 32, 64]] = 6, 6.1, 2.0**-140
    _, scales = mxfp4.pack(weight)
    assert scales.dtype == ml_dtypes.float8_e8m0fnu
    assert scales.astype(np.float64).tolist() == [[1, 2, 2.0**-127, 2.0**-127]]


def test_weights_far_below_the_largest_keep_a_scale() -> None:
    """Modelopt's becomes 0 here, and with it the group."""
    weight = np.full((1, 32), 1000, np.float32)
    weight[0, 16:] = 1e-4
    _, scales, _ = nvfp4.pack(weight)
    assert scales.astype(np.float32).tolist() == [[448, 2.0**-9]]
