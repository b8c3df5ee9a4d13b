"""Numbers of few bits with an exponent: rounding to them, half to even and saturating, so that no NaN comes out."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32

E4M3, E2M1, E8M0 = ml_dtypes.float8_e4m3fn, ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e8m0fnu
LARGEST = {E4M3: 448.0, E2M1: 6.0}
"""The largest finite number of each."""
LEAST_E4M3 = 2.0**-9
LEAST_SCALE = np.float32(2.0**-126)
"""The smallest float32 with all its bits: a scale below it would be 0 or coarse."""
ROUNDING = 1 + 2.0**-20
"""Room in a bound for the roundings of float32 on the way."""


def rounded(values: Float32, dtype: Any) -> NDArray[np.generic]:
    """Round finite numbers to E4M3 or E2M1; what is too large becomes the largest."""
    bound = np.float32(LARGEST[dtype])
    return np.clip(values, -bound, bound).astype(dtype)


def divided(groups: Float32, scales: Float32) -> Float32:
    """Give weights `[rows, groups, group]` in units of their scales `[rows, groups]`; 0 where a scale is 0."""
    safe = np.where(scales > 0, scales, np.float32(np.inf))
    quotient: Float32 = groups / safe[:, :, None]
    return quotient


def peaks(groups: Float32) -> Float32:
    """Give the largest magnitude of each group, `[rows, groups]`."""
    largest: Float32 = np.abs(groups).max(axis=2)
    return largest


def scales_to(largest: Float32, most: float) -> Float32:
    """Give the scales with which `most` reaches the largest magnitudes; 0 where these are 0, and never one with fewer bits."""
    scales = np.maximum(largest / np.float32(most), LEAST_SCALE)
    return np.where(largest > 0, scales, np.float32(0))


def peak(weight: Float32) -> np.float32:
    """Give the largest magnitude of a whole tensor, without a copy of it."""
    return np.float32(max(weight.max(initial=0), -weight.min(initial=0)))
