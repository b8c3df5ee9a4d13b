"""UINT4 weights with a zero point: a weight is `(q - zero) * scale` with q and zero from 0 to 15, per group of inputs.

Scale and zero point are those, of some between the least and the largest weight, that leave the smallest squared error.
"""

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.quant.groups import Float32, Parts, pack_by_groups, spread

NAME = "uint4"
HEAD, HEAD_GROUP = "int8", 32
BITS = 4
GROUP = 32
GROUPS = (32, 64, 128)
TARGETS = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = True
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
    best = np.full(width.shape, -1, np.float32)
    numbers, scales, zeros = np.zeros(groups.shape, np.int8), width * 0, width * 0
    for stretch in STRETCHES:
        scale = safe_width * np.float32(stretch)
        # The zero point keeps the middle of the range in the middle, whatever is clipped.
        zero = np.clip(np.rint(MOST / 2 - (low / scale + MOST / 2 / stretch)), 0, MOST).astype(
            np.float32
        )
        tried = np.clip(
            np.rint(groups / scale[:, :, None]), -zero[:, :, None], MOST - zero[:, :, None]
        )
        along = np.einsum("rgk,rgk->rg", tried, groups)
        squares = np.einsum("rgk,rgk->rg", tried, tried)
        safe = np.where(squares > 0, squares, np.float32(1))
        explained = along * along / safe
        better = explained > best
        best = np.where(better, explained, best)
        scales = np.where(better, along / safe, scales)
        zeros = np.where(better, zero, zeros)
        numbers = np.where(better[:, :, None], (tried + zero[:, :, None]).astype(np.int8), numbers)
    return numbers.astype(ml_dtypes.uint4), scales.astype(np.float32), zeros.astype(ml_dtypes.uint4)
