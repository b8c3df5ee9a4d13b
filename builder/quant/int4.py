"""INT4 weights, symmetric: a weight is `q * scale` with q from -8 to 7, one float32 scale per group of inputs.

The scale is the one, of some near the largest weight / -8, that leaves the smallest squared error, refined to the best
for its numbers.
"""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32
from builder.checkpoint.rows import ANY
from builder.quant.groups import Parts, best_fit, pack_by_groups, unpack_by_groups

NAME = "int4"
HEAD, HEAD_GROUP = "int8", 32
"""Format of the output head: a third of the error of a model in 4 bits came from it."""
BITS = 4
GROUP = 32
GROUPS = (32, 64, 128)
TARGETS = ("cpu", "portable")
EMULATED_ON = ()
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "INT4", "FLOAT"
ROWS = ANY
LEAST, MOST = -8, 7
STRETCHES = (1.0, 0.75, 0.8, 0.85, 0.9, 0.95, 1.05, 1.1, 1.15)
"""Scales tried, as multiples of the largest weight / -8. Below 1 large weights are clipped and all others finer."""


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to int4 of the same shape and scales `[out, groups]`.

    A group of zeros gets scale 0 and gives back exact zeros.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)


def _pack(groups: Float32) -> Parts:
    index = np.abs(groups).argmax(axis=2, keepdims=True)
    widest = np.take_along_axis(groups, index, axis=2)[:, :, 0] / np.float32(LEAST)
    tries = (_rounded(groups, widest * np.float32(stretch)) for stretch in STRETCHES)
    no_zeros = np.zeros_like(widest)
    numbers, scales, _ = best_fit(groups, ((tried, no_zeros) for tried in tries))
    return numbers.astype(ml_dtypes.int4), scales


def _rounded(groups: Float32, scales: Float32) -> Float32:
    safe = np.where(scales != 0, scales, np.float32(1))
    rounded: Float32 = np.clip(np.rint(groups / safe[:, :, None]), LEAST, MOST)
    return rounded
