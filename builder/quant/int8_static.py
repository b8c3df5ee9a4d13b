"""INT8 of fixed scales (W8A8): weights have one scale per output, a layer's activations one, calibrated or the checkpoint's.

One scale for all activations is coarse: it needs them smoothed first, as SmoothQuant does (arXiv:2211.10438).
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import CHANNEL, Float32
from builder.checkpoint.rows import TENSOR
from builder.quant import int8
from builder.quant.floats import divided, peaks, scales_to
from builder.quant.groups import Parts, pack_by_groups, unpack_by_groups

NAME = "int8-static"
HEAD, HEAD_GROUP = "float32", 0
BITS = 8
GROUP = CHANNEL
GROUPS = (CHANNEL,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("portable",)
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "INT8", "FLOAT"
ROWS = TENSOR

error_bound = int8.error_bound


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to int8 of the same shape and float32 scales `[out, 1]`.

    A row of zeros gets scale 0 and gives back exact zeros.
    """
    return pack_by_groups(weight, group, _pack)


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)


def _pack(groups: Float32) -> Parts:
    scales = scales_to(peaks(groups), 127)
    numbers = np.clip(np.rint(divided(groups, scales)), -127, 127).astype(np.int8)
    return numbers, scales
