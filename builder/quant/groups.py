"""Groups of weights that share a scale: runs along the inner dimension, the last one of a row padded with zeros."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHANNEL = 0
"""For a group: all inputs of an output share one scale."""
NUMBERS_AT_ONCE = 1 << 18
"""Weights packed at a time: what is computed on the way stays in the cache of a core."""

Float32 = NDArray[np.float32]
Parts = tuple[NDArray[np.generic], ...]


def num_groups(size_in: int, group: int) -> int:
    """Count the groups of a row; the last may be shorter."""
    return -(-size_in // group) if group else 1


def pack_by_groups(weight: Float32, group: int, pack: Callable[[Float32], Parts]) -> Parts:
    """Pack `[out, in]` some rows at a time.

    `pack` takes groups `[rows, groups, group]`, and gives numbers of that shape and then parts `[rows, groups]`.
    """
    size_out, size_in = weight.shape
    count = num_groups(size_in, group)
    width = count * group if group else size_in
    step = max(1, NUMBERS_AT_ONCE // width)
    found = []
    for first in range(0, size_out, step):
        rows = weight[first : first + step]
        padded = np.zeros((len(rows), width), np.float32)
        padded[:, :size_in] = rows
        numbers, *rest = pack(padded.reshape(len(rows), count, -1))
        found.append((numbers.reshape(len(rows), width)[:, :size_in], *rest))
    return tuple(np.concatenate(parts) for parts in zip(*found, strict=True))


def spread(values: NDArray[np.generic], group: int, size_in: int) -> NDArray[Any]:
    """Repeat a part `[out, groups]` for each weight, `[out, in]`."""
    return np.repeat(values, group or size_in, axis=1)[:, :size_in]
