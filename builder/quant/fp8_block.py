"""FP8 in blocks, as DeepSeek publishes it: E4M3 times a float32 scale per block of 128 outputs and 128 inputs.

The scale is max |w| / 448 over its block. Activations are rounded to E4M3 when a step runs, 128 numbers of a row at a time with
a scale of their own: nothing is calibrated. (DeepSeek-V3 technical report, section 3.3.2.)
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32, num_groups
from builder.checkpoint.rows import BLOCK, BLOCK_SIZE
from builder.quant import fp8_dynamic
from builder.quant.floats import E4M3, LARGEST, LEAST_SCALE, rounded
from builder.quant.groups import Parts, unpack_by_groups

NAME = "fp8-block"
HEAD, HEAD_GROUP = fp8_dynamic.HEAD, fp8_dynamic.HEAD_GROUP
BITS = 8
GROUP = BLOCK_SIZE
GROUPS = (BLOCK_SIZE,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT8E4M3FN", "FLOAT"
ROWS = BLOCK

error_bound = fp8_dynamic.error_bound


def pack(weight: Float32, group: int = GROUP) -> Parts:
    """Quantize `[out, in]` to E4M3 of the same shape; the scale of a block is given for each of its outputs, `[out, groups]`.

    A block of zeros gets scale 0 and gives back exact zeros. Blocks at the ends may be smaller.
    """
    size_out, size_in = weight.shape
    numbers = np.empty(weight.shape, E4M3)
    scales = np.empty((size_out, num_groups(size_in, group)), np.float32)
    for top in range(0, size_out, BLOCK_SIZE):
        for index, left in enumerate(range(0, size_in, group)):
            block = np.s_[top : top + BLOCK_SIZE, left : left + group]
            largest = np.abs(weight[block]).max()
            scale = np.maximum(largest / np.float32(LARGEST[E4M3]), LEAST_SCALE)
            numbers[block] = rounded(weight[block] / scale, E4M3)
            scales[top : top + BLOCK_SIZE, index] = scale if largest > 0 else 0
    return numbers, scales


def unpack(packed: NDArray[np.generic], scales: NDArray[np.generic], group: int = GROUP) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    return unpack_by_groups(packed, scales, group)
