"""FP8 weights and activations: a weight is E4M3 times a float32 scale per output, max |w| / 448 over its row.

Activations are rounded to E4M3 when a step runs, each row (token) with a scale of its own: nothing is calibrated.
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import CHANNEL, Float32
from builder.checkpoint.rows import TOKEN
from builder.quant.floats import E4M3, LARGEST, ROUNDING, divided, peaks, rounded, scales_to
from builder.quant.groups import Parts, pack_by_groups, unpack_by_groups

NAME = "fp8-dynamic"
HEAD, HEAD_GROUP = "float32", 0
"""Head and embedding stay as they are: modelopt and llm-compressor leave them out too."""
BITS = 8
GROUP = CHANNEL
GROUPS = (CHANNEL,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT8E4M3FN", "FLOAT"
ROWS = TOKEN


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to E4M3 of the same shape and float32 scales `[out, 1]`.

    A row of zeros gets scale 0 and gives back exact zeros.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)


def error_bound(scales: Float32) -> Float32:
    """Give the largest error of any weight of each group: half of the widest gap, that from 416 to 448."""
    return scales * np.float32(16 * ROUNDING)


def _pack(groups: Float32) -> Parts:
    scales = scales_to(peaks(groups), LARGEST[E4M3])
    return rounded(divided(groups, scales), E4M3), scales
