"""FP8 of fixed scales (W8A8): weights and activations are E4M3, each tensor of either with one float32 scale.

The scale of a weight is max |w| / 448; that of a layer's activations is calibrated, or the checkpoint's. Hardware multiplies
nothing faster that loses so little.
"""

import numpy as np

from builder.checkpoint.groups import CHANNEL, Float32
from builder.checkpoint.rows import TENSOR
from builder.quant import fp8_dynamic
from builder.quant.floats import E4M3, LARGEST, divided, peak, rounded, scales_to
from builder.quant.groups import Parts, pack_by_groups

NAME = "fp8"
HEAD, HEAD_GROUP = fp8_dynamic.HEAD, fp8_dynamic.HEAD_GROUP
BITS = 8
GROUP = CHANNEL
GROUPS = (CHANNEL,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT8E4M3FN", "FLOAT"
ROWS = TENSOR

unpack, error_bound = fp8_dynamic.unpack, fp8_dynamic.error_bound


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to E4M3 of the same shape; the one scale is given for each output, float32 `[out, 1]`.

    A tensor of zeros gets scale 0 and gives back exact zeros.
    """
    scale = scales_to(np.array(peak(weight)), LARGEST[E4M3])
    return pack_by_groups(weight, group, lambda groups: _pack(groups, scale))


def _pack(groups: Float32, scale: Float32) -> Parts:
    scales = np.full(groups.shape[:2], scale)
    return rounded(divided(groups, scales), E4M3), scales
