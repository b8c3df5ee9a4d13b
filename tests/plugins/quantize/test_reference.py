"""The references of rounding: against other people's casts, and against what NVFP4's own arithmetic says."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from plugins.quantize.reference import (
    quantize,
    quantize_dynamic,
    quantize_fixed,
    quantize_fp4,
    quantize_fp8,
    to_e2m1,
    to_e4m3,
)
from plugins.quantize.spec import FIXED_SCALES

Float32 = np.ndarray
EDGES = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]
"""What lies in the middle of two magnitudes of E2M1."""
FIXED = np.float32(0.013)


def rows(seed: int = 0, shape: tuple[int, int] = (20, 160)) -> Float32:
    random = np.random.default_rng(seed)
    sizes = np.exp(random.normal(size=(shape[0], 1)) * 3)
    return (random.normal(size=shape) * sizes).astype(np.float32)


@given(arrays(np.float32, 64, elements=st.floats(-(2.0**20), 2.0**20, width=32)))
def test_casts_are_those_of_ml_dtypes_and_of_torch(values: Float32) -> None:
    cut = np.clip(values, -448, 448)
    want = cut.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(to_e4m3(values), want)
    torch_s = torch.from_numpy(cut).to(torch.float8_e4m3fn).float().numpy()
    np.testing.assert_array_equal(to_e4m3(values), torch_s)
    small = np.clip(values, -6, 6)
    want = small.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    np.testing.assert_array_equal(to_e2m1(values), want)


def test_ties_of_e2m1_go_to_even_and_all_beyond_becomes_six() -> None:
    edges = np.array([*EDGES, 6.5, 1e30], np.float32)
    np.testing.assert_array_equal(to_e2m1(edges), [0, 1, 1, 2, 2, 4, 4, 6, 6])
    np.testing.assert_array_equal(to_e2m1(-edges), -to_e2m1(edges))
    beside = np.nextafter(edges[:7], np.float32(10))
    np.testing.assert_array_equal(to_e2m1(beside), [0.5, 1, 1.5, 2, 3, 4, 6])


def nvfp4_by_ml_dtypes(given: Float32, scale: np.float32) -> Float32:
    groups = given.reshape(len(given), -1, 16)
    peaks = np.abs(groups).max(axis=2, keepdims=True)
    narrow = np.minimum(peaks / (np.float32(6) * scale), np.float32(448))
    scales = narrow.astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * scale
    units = np.clip(groups / np.where(scales > 0, scales, 1), -6, 6)
    numbers = units.astype(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return (numbers * scales).reshape(given.shape)


@pytest.mark.parametrize("scale", [1e-4, 0.013, 3.0])
def test_nvfp4_is_e2m1_in_scales_of_e4m3_in_the_scale_of_the_tensor(scale: float) -> None:
    given = rows()
    given[3, 16:32] = 0
    want = nvfp4_by_ml_dtypes(given, np.float32(scale))
    np.testing.assert_array_equal(quantize_fp4(given, scale), want)


def test_a_calibrated_scale_keeps_numbers_of_nvfp4_within_a_sixth_of_their_group_s_peak() -> None:
    given = rows()
    scale = np.abs(given).max() / np.float32(6 * 448)
    error = np.abs(quantize_fp4(given, scale) - given).reshape(20, -1, 16)
    peaks = np.abs(given).reshape(20, -1, 16).max(axis=2, keepdims=True)
    assert (error <= peaks / 6 * 1.07 + scale * 2.0**-9 * 6).all()


def test_a_group_of_nvfp4_whose_scale_rounds_to_zero_becomes_zero() -> None:
    given = np.zeros((1, 32), np.float32)
    given[0, 3], given[0, 19] = (
        2.0**-10 * 6,
        2.0**-10 * 6.01,
    )  # a tie, which goes to zero; and above
    got = quantize_fp4(given, 1.0)
    assert not got[0, :16].any()
    assert got[0, 19] == np.float32(2.0**-9 * 3)


def test_nvfp4_saturates_beyond_the_largest_scale_of_a_group() -> None:
    given = np.full((1, 16), 1e30, np.float32)
    np.testing.assert_array_equal(quantize_fp4(given, 0.5), given * 0 + 6 * 448 * np.float32(0.5))


def test_a_fixed_scale_of_fp8_is_divided_by_and_multiplied_with() -> None:
    given = rows()
    given[0, :2] = 449 * FIXED, -1e30
    cast = np.clip(given / FIXED, -448, 448).astype(ml_dtypes.float8_e4m3fn)
    got = quantize_fp8(given, FIXED)
    np.testing.assert_array_equal(got, cast.astype(np.float32) * FIXED)
    np.testing.assert_array_equal(got[0, :2], np.float32([448, -448]) * FIXED)


def test_int8_of_a_fixed_scale_is_cut_at_127_either_way() -> None:
    given = np.array([[0.5, 1.5, -2.5, 127.4, 127.6, -127.6, 1e38, -1e38] * 4], np.float32)
    numbers, scales = quantize_fixed(given, 32, 1.0)
    np.testing.assert_array_equal(numbers[0, :8], [0, 2, -2, 127, 127, -127, 127, -127])
    np.testing.assert_array_equal(scales, [[1.0]])


@pytest.mark.parametrize("block", [16, 48, 128])
def test_blocks_have_the_bits_of_rows_of_their_own(block: int) -> None:
    given = rows()
    got = quantize_dynamic(given, block)
    for start in range(0, given.shape[1], block):
        part = slice(start, start + block)
        np.testing.assert_array_equal(got[:, part], quantize_dynamic(given[:, part]))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_poisons_all_that_share_its_scale_and_nothing_else(value: float) -> None:
    given = rows(shape=(3, 64))
    spoiled = given.copy()
    spoiled[1, 20] = value
    for rounded, part in (
        (quantize_fp8, slice(0, 64)),
        (quantize_fp4, slice(16, 32)),
        (lambda x, _: quantize_dynamic(x, 32), slice(0, 32)),
        (lambda x, scale: quantize_fixed(x, 32, scale)[1].repeat(32, 1), slice(0, 32)),
        (lambda x, _: quantize(x, 32)[1].repeat(32, 1), slice(0, 32)),
    ):
        got, clean = rounded(spoiled, FIXED), rounded(given, FIXED)
        assert np.isnan(got[1, part]).all()
        got[1, part] = clean[1, part]
        np.testing.assert_array_equal(got, clean)


@pytest.mark.parametrize("scale", FIXED_SCALES)
def test_the_outermost_fixed_scales_give_numbers(scale: float) -> None:
    given = np.array([[0, 1e-45, 1e-38, 1, -1e38, 3.4e38] + [0] * 26], np.float32)
    for rounded in (quantize_fp8, quantize_fp4):
        assert np.isfinite(rounded(given, scale)).all()
    assert np.isfinite(quantize_fixed(given, 32, scale)[1]).all()
