"""NVFP4 weights alone (W4A16): E2M1 times an E4M3 scale per 16 inputs times one float32 scale of the whole tensor.

The scale of the tensor is max |w| / (6 * 448), so that no scale of a group lies above 448; it multiplies, as modelopt's
`weight_scale_2` does (compressed-tensors stores its inverse). Activations stay as they are.
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32
from builder.checkpoint.rows import FLOAT
from builder.quant.floats import (
    E2M1,
    E4M3,
    LARGEST,
    LEAST_E4M3,
    LEAST_SCALE,
    ROUNDING,
    divided,
    peak,
    peaks,
    rounded,
)
from builder.quant.groups import Parts, pack_by_groups, unpack_by_groups

NAME = "nvfp4-weight-only"
HEAD, HEAD_GROUP = "float32", 0
BITS = 4
GROUP = 16
GROUPS = (16,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT4E2M1", "FLOAT8E4M3FN"
ROWS = FLOAT


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to E2M1 of the same shape, E4M3 scales `[out, groups]` and a float32 scale `[]` of the tensor.

    A group of zeros gets scale 1, as modelopt gives it; any other one of 2**-9 at least, where modelopt's may become 0.
    """
    whole = peak(weight) / np.float32(LARGEST[E2M1] * LARGEST[E4M3])
    whole = np.maximum(whole, LEAST_SCALE)
    parts = pack_by_groups(weight, group, lambda groups: _pack(groups, whole))
    return (*parts, np.array(whole))


def unpack(
    packed: NDArray[np.generic],
    scales: NDArray[np.generic],
    whole: NDArray[np.generic],
    group: int = GROUP,
) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    steps = scales.astype(np.float32) * whole.astype(np.float32)
    return unpack_by_groups(packed, steps, group)


def error_bound(scales: NDArray[np.generic], whole: NDArray[np.generic]) -> Float32:
    """Give the largest error of any weight of each group.

    It is half of the widest gap, that from 4 to 6, or six times half a step of a scale below 2**-6, which is coarse.
    """
    bound: Float32 = np.maximum(scales.astype(np.float32), np.float32(3 * LEAST_E4M3))
    return bound * whole.astype(np.float32) * np.float32(ROUNDING)


def _pack(groups: Float32, whole: np.float32) -> Parts:
    largest = peaks(groups)
    wanted = np.maximum(largest / (np.float32(LARGEST[E2M1]) * whole), np.float32(LEAST_E4M3))
    scales = rounded(np.where(largest > 0, wanted, np.float32(1)), E4M3)
    steps = scales.astype(np.float32) * whole
    return rounded(divided(groups, steps), E2M1), scales
