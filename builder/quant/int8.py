"""INT8 weights, symmetric, one float32 scale per group of inputs or per output.

In groups of 32, the class of llama.cpp's Q8_0: a weight is `q * scale`, with scale = max |w| / 127 over its group.
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import CHANNEL, Float32
from builder.checkpoint.rows import ANY
from builder.quant.groups import Parts, pack_by_groups, unpack_by_groups

NAME = HEAD = "int8"
BITS = 8
GROUP = HEAD_GROUP = 64
GROUPS = (32, 64, 128, CHANNEL)
TARGETS = ("cpu", "portable")
EMULATED_ON = ()
IS_ROTATED = True
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "INT8", "FLOAT"
ROWS = ANY


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to int8 of the same shape and scales `[out, groups]`.

    A group of zeros gets scale 0 and gives back exact zeros.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)


def error_bound(scales: Float32) -> Float32:
    """Give the largest error of any weight of each group: half a step, and float32 rounding."""
    return scales * np.float32(0.5 + 127 * 2.0**-22)


def _pack(groups: Float32) -> Parts:
    scales: Float32 = np.abs(groups).max(axis=2) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    numbers = np.clip(np.rint(groups / safe[:, :, None]), -127, 127).astype(np.int8)
    return numbers, scales
