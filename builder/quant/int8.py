"""INT8 weights, symmetric, one float32 scale per group of 32 along the inner dimension.

The class of llama.cpp's Q8_0: a weight is `q * scale`, with scale = max |w| / 127 over its group.
"""

import numpy as np
from numpy.typing import NDArray

NAME = "int8"
GROUP = 32
ROWS = 4096
"""Rows packed at a time, which bounds the memory for intermediate values."""
TARGETS = ("cpu", "portable")

Float32 = NDArray[np.float32]


def num_groups(size_in: int) -> int:
    """Count the groups of a row; the last may be shorter."""
    return -(-size_in // GROUP)


def pack(weight: Float32) -> tuple[NDArray[np.int8], Float32]:
    """Quantize `[out, in]` to int8 of the same shape and scales `[out, ceil(in / 32)]`.

    A group of zeros gets scale 0 and gives back exact zeros.
    """
    size_out, size_in = weight.shape
    packed = np.empty(weight.shape, np.int8)
    scales = np.empty((size_out, num_groups(size_in)), np.float32)
    for first in range(0, size_out, ROWS):
        rows = slice(first, first + ROWS)
        packed[rows], scales[rows] = _pack_rows(weight[rows])
    return packed, scales


def unpack(packed: NDArray[np.int8], scales: Float32) -> Float32:
    """Give back float32 weights `[out, in]`: the reference of the format."""
    spread = np.repeat(scales, GROUP, axis=1)[:, : packed.shape[1]]
    return packed.astype(np.float32) * spread


def error_bound(scales: Float32) -> Float32:
    """Give the largest error of any weight of each group: half a step, and float32 rounding."""
    return scales * np.float32(0.5 + 127 * 2.0**-22)


def _pack_rows(weight: Float32) -> tuple[NDArray[np.int8], Float32]:
    size_out, size_in = weight.shape
    padded = np.zeros((size_out, num_groups(size_in) * GROUP), np.float32)
    padded[:, :size_in] = weight
    groups = padded.reshape(size_out, -1, GROUP)
    scales: Float32 = np.abs(groups).max(axis=2) / np.float32(127)
    safe = np.where(scales > 0, scales, np.float32(1))
    packed = np.clip(np.rint(groups / safe[:, :, None]), -127, 127).astype(np.int8)
    return packed.reshape(padded.shape)[:, :size_in], scales
