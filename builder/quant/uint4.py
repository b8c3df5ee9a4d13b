"""UINT4 weights with a zero point: a weight is `(q - zero) * scale` with q and zero from 0 to 15, per group of inputs.

Scale and zero point are those, of some between the least and the largest weight, that leave the smallest squared error.
"""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32, spread
from builder.checkpoint.rows import ANY
from builder.quant.groups import Parts, best_fit, pack_by_groups

NAME = "uint4"
HEAD, HEAD_GROUP = "int8", 32
BITS = 4
GROUP = 32
GROUPS = (32, 64, 128)
TARGETS = ("cpu", "portable")
EMULATED_ON = ()
IS_ROTATED = False
HAS_ZERO_POINTS = True
ELEMENT, SCALE = "UINT4", "FLOAT"
ROWS = ANY
MOST = 15
STRETCHES = (1.0, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.05)
"""Scales tried, as multiples of the range of a group's weights / 15."""


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to uint4 of the same shape, scales `[out, groups]` and uint4 zero points `[out, groups]`.

    A group of zeros gets scale 0 and gives back exact zeros.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(
    packed: NDArray[np.generic],
    scales: NDArray[np.generic],
    zeros: NDArray[np.generic],
    group: int = GROUP,
) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    size_in = packed.shape[1]
    steps = packed.astype(np.float32) - spread(zeros.astype(np.float32), group, size_in)
    weight: Float32 = steps * spread(scales, group, size_in)
    return weight


def _pack(groups: Float32) -> Parts:
    low = np.minimum(groups.min(axis=2), 0)
    width = (np.maximum(groups.max(axis=2), 0) - low) / np.float32(MOST)
    safe_width = np.where(width > 0, width, np.float32(1))
    tries = (
        _rounded(groups, low, safe_width * np.float32(stretch), stretch) for stretch in STRETCHES
    )
    steps, scales, zeros = best_fit(groups, tries)
    numbers = steps + zeros[:, :, None]
    return numbers.astype(ml_dtypes.uint4), scales, zeros.astype(ml_dtypes.uint4)


def _rounded(
    groups: Float32, low: Float32, scale: Float32, stretch: float
) -> tuple[Float32, Float32]:
    """Give numbers less their zero points, which keep the middle of a range in the middle, whatever is clipped."""
    zero = np.clip(np.rint(MOST / 2 - (low / scale + MOST / 2 / stretch)), 0, MOST)
    zero = zero.astype(np.float32)
    rounded = np.rint(groups / scale[:, :, None])
    return np.clip(rounded, -zero[:, :, None], MOST - zero[:, :, None]), zero
