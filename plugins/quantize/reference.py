"""Rounding of rows in plain numpy: the judge of every kernel, to the bit. The contracts are in `spec.py`."""

import numpy as np
from numpy.typing import NDArray

from plugins.quantize.spec import (
    GROUP_E2M1,
    LARGEST_E2M1,
    LARGEST_E4M3,
    LARGEST_INT8,
    LEAST_PEAK,
    LEAST_SCALE,
)

Float32 = NDArray[np.float32]
Bools = NDArray[np.bool_]


def quantize(rows: Float32, group: int) -> tuple[NDArray[np.int8], Float32]:
    """Give int8 numbers `[T, width]` and scales `[T, width / group]`; `width` is a multiple of `group`."""
    clean, is_poisoned = _checked(rows.reshape(len(rows), -1, group))
    peaks = np.abs(clean).max(axis=2)
    peaks[peaks < LEAST_PEAK] = 0
    largest = np.float32(LARGEST_INT8)
    scales = np.where(is_poisoned[:, :, 0], np.float32(np.nan), peaks / largest)
    safe = np.where(peaks > 0, peaks, np.float32(np.inf))
    numbers = np.rint(clean * (largest / safe)[:, :, None]).astype(np.int8)
    return numbers.reshape(rows.shape), scales.astype(np.float32)


def quantize_fixed(rows: Float32, group: int, scale: float) -> tuple[NDArray[np.int8], Float32]:
    """Give what `quantize` gives, all with one scale; beyond it numbers are cut."""
    clean, is_poisoned = _checked(rows.reshape(len(rows), -1, group))
    cut = np.clip(_divided(clean, np.float32(scale)), -LARGEST_INT8, LARGEST_INT8)
    scales = np.where(is_poisoned[:, :, 0], np.float32(np.nan), np.float32(scale))
    return np.rint(cut).astype(np.int8).reshape(rows.shape), scales.astype(np.float32)


def quantize_dynamic(rows: Float32, block_size: int = 0) -> Float32:
    """Give rows `[T, width]` rounded to E4M3, each or each block of it with a scale, and multiplied by it again."""
    num_rows, width = rows.shape
    block = block_size or width
    padded = np.pad(rows, ((0, 0), (0, -width % block)))
    clean, is_poisoned = _checked(padded.reshape(num_rows, -1, block))
    peaks = np.abs(clean).max(axis=2, keepdims=True)
    scales = np.maximum(peaks / np.float32(LARGEST_E4M3), np.float32(LEAST_SCALE))
    rounded = _poisoned(to_e4m3(_divided(clean, scales)) * scales, is_poisoned)
    return rounded.reshape(num_rows, -1)[:, :width]


def quantize_fp8(rows: Float32, scale: float) -> Float32:
    """Give rows `[T, width]` rounded to E4M3 with a fixed scale, and multiplied by it again."""
    clean, is_poisoned = _checked(rows)
    fixed = np.float32(scale)
    return _poisoned(to_e4m3(_divided(clean, fixed)) * fixed, is_poisoned)


def quantize_fp4(rows: Float32, scale: float) -> Float32:
    """Give rows `[T, width]` rounded to E2M1 in groups of 16 with E4M3 scales, and multiplied by these again.

    `width` is a multiple of 16; scales of groups are multiples of the fixed one.
    """
    clean, is_poisoned = _checked(rows.reshape(len(rows), -1, GROUP_E2M1))
    fixed = np.float32(scale)
    peaks = np.abs(clean).max(axis=2, keepdims=True)
    scales = to_e4m3(_divided(peaks, np.float32(LARGEST_E2M1) * fixed)) * fixed
    safe = np.where(scales > 0, scales, np.float32(np.inf))
    return _poisoned(to_e2m1(_divided(clean, safe)) * scales, is_poisoned).reshape(rows.shape)


def to_e4m3(values: Float32) -> Float32:
    """Round numbers to E4M3: 3 bits behind the leading one down to 2**-6, then steps of 2**-9; saturating."""
    return _to_bits(values, LARGEST_E4M3, bits=3, least_exponent=-6)


def to_e2m1(values: Float32) -> Float32:
    """Round numbers to E2M1: 1 bit behind the leading one down to 1, then steps of 1/2; saturating."""
    return _to_bits(values, LARGEST_E2M1, bits=1, least_exponent=0)


def _to_bits(values: Float32, largest: float, *, bits: int, least_exponent: int) -> Float32:
    """Round to `bits` behind the leading one, half to even; below `2**least_exponent` steps stay the same."""
    cut = np.clip(values, -largest, largest)
    _, exponents = np.frexp(cut)  # of 2**e with a fraction from 1/2 on
    steps = np.ldexp(np.float32(1), np.maximum(exponents - 1, least_exponent) - bits)
    rounded: Float32 = (np.rint(cut / steps) * steps).astype(np.float32)
    return rounded


def _checked(groups: Float32) -> tuple[Float32, Bools]:
    """Give numbers with zeros for groups, along the last axis, that hold no finite ones alone; and which these are."""
    is_poisoned: Bools = ~np.isfinite(groups).all(axis=-1, keepdims=True)
    return np.where(is_poisoned, np.float32(0), groups), is_poisoned


def _divided(values: Float32, scales: Float32 | np.float32) -> Float32:
    with np.errstate(over="ignore"):  # what is too large becomes the largest number
        quotients: Float32 = values / scales
    return quotients


def _poisoned(values: Float32, is_poisoned: Bools) -> Float32:
    return np.where(is_poisoned, np.float32(np.nan), values).astype(np.float32)
