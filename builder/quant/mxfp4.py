"""MXFP4 weights (W4A16): E2M1 times a power of two per 32 inputs, stored as an exponent (E8M0).

The power is the smallest that reaches the largest weight of its group, as modelopt has it: nothing saturates. (The OCP
specification's own example takes the one below, which cuts weights above 6 / 8 of the next power.)
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32
from builder.checkpoint.rows import FLOAT
from builder.quant.floats import E2M1, E8M0, LARGEST, ROUNDING, divided, peaks, rounded
from builder.quant.groups import Parts, pack_by_groups, unpack_by_groups

NAME = "mxfp4"
HEAD, HEAD_GROUP = "float32", 0
BITS = 4
GROUP = 32
GROUPS = (32,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT4E2M1", "FLOAT8E8M0"
ROWS = FLOAT
LEAST_EXPONENT = -127


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to E2M1 of the same shape and E8M0 scales `[out, groups]`.

    A scale can't be 0: that of a group of zeros is 2**-127, and gives back exact zeros all the same.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)


def error_bound(scales: NDArray[np.generic]) -> Float32:
    """Give the largest error of any weight of each group: half of the widest gap, that from 4 to 6."""
    return scales.astype(np.float32) * np.float32(ROUNDING)


def _pack(groups: Float32) -> Parts:
    fraction, exponents = np.frexp(peaks(groups) / np.float32(LARGEST[E2M1]))
    exponents -= fraction == 0.5  # a power of two needs none above it
    exponents = np.where(fraction > 0, exponents, LEAST_EXPONENT)
    scales = np.ldexp(np.float32(1), np.maximum(exponents, LEAST_EXPONENT)).astype(np.float32)
    return rounded(divided(groups, scales), E2M1), scales.astype(E8M0)
