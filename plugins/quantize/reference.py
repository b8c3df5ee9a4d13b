"""Quantize in plain numpy: the judge of every kernel, to the bit."""

import numpy as np
from numpy.typing import NDArray

from plugins.quantize.spec import LARGEST_E4M3, LEAST_SCALE

Float32 = NDArray[np.float32]


def quantize(rows: Float32, group: int) -> tuple[NDArray[np.int8], Float32]:
    """Give int8 numbers `[T, width]` and scales `[T, width / group]`; `width` is a multiple of `group`."""
    groups = rows.reshape(len(rows), -1, group)
    peaks = np.abs(groups).max(axis=2)
    is_poisoned = ~np.isfinite(groups).all(axis=2)
    scales = np.where(is_poisoned, np.float32(np.nan), peaks / np.float32(127))
    safe = np.where((peaks > 0) & ~is_poisoned, peaks, np.float32(np.inf))
    clean = np.where(is_poisoned[:, :, None], np.float32(0), groups)
    numbers = np.rint(clean * (np.float32(127) / safe)[:, :, None]).astype(np.int8)
    return numbers.reshape(rows.shape), scales.astype(np.float32)


def quantize_dynamic(rows: Float32) -> Float32:
    """Give rows `[T, width]` rounded to E4M3, each with a scale of its own, and multiplied by it again."""
    is_poisoned = ~np.isfinite(rows).all(axis=1, keepdims=True)
    clean = np.where(is_poisoned, np.float32(0), rows)
    peaks = np.abs(clean).max(axis=1, keepdims=True)
    scales = np.maximum(peaks / np.float32(LARGEST_E4M3), np.float32(LEAST_SCALE))
    rounded = to_e4m3(clean / scales) * scales
    return np.where(is_poisoned, np.float32(np.nan), rounded).astype(np.float32)


def to_e4m3(values: Float32) -> Float32:
    """Round finite numbers to E4M3: 3 bits behind the leading one down to 2**-6, then steps of 2**-9; saturating."""
    _, exponents = np.frexp(values)  # of 2**e with a fraction from 1/2 on
    steps = np.ldexp(np.float32(1), np.maximum(exponents - 1, -6) - 3)
    rounded: Float32 = np.clip(np.rint(values / steps) * steps, -LARGEST_E4M3, LARGEST_E4M3)
    return rounded.astype(np.float32)
