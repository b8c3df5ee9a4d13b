"""Pack weights group by group, the last one of a row padded with zeros."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32, num_groups, spread

NUMBERS_AT_ONCE = 1 << 18
"""Weights packed at a time: what is computed on the way stays in the cache of a core."""

Parts = tuple[NDArray[np.generic], ...]


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


def unpack_by_groups(
    numbers: NDArray[np.generic], scales: NDArray[np.generic], group: int
) -> Float32:
    """Give back float32 weights `[out, in]`: numbers times the scales `[out, groups]` of their groups."""
    factors = spread(scales.astype(np.float32, copy=False), group, numbers.shape[1])
    weight: Float32 = numbers.astype(np.float32) * factors
    return weight


def best_fit(groups: Float32, tries: Iterable[tuple[Float32, Float32]]) -> tuple[Float32, ...]:
    """Choose for each group `[rows, groups]` of weights `[rows, groups, group]` the try of the smallest squared error.

    A try is whole numbers `q` of the shape of the weights and the zero point of each group, taken off already. Gives
    the best `q`, for each group the scale that is best for it, and its zero point.
    """
    numbers = np.zeros(groups.shape, np.float32)
    best, scales, zeros = (np.zeros(groups.shape[:2], np.float32) for _ in range(3))
    best -= 1
    for tried, zero in tries:
        along = np.einsum("rgk,rgk->rg", tried, groups)
        squares = np.einsum("rgk,rgk->rg", tried, tried)
        safe = np.where(squares > 0, squares, np.float32(1))
        explained = along * along / safe  # what is left of the squared weights is the squared error
        better = explained > best
        best = np.where(better, explained, best)
        scales = np.where(better, along / safe, scales)
        zeros = np.where(better, zero, zeros)
        numbers = np.where(better[:, :, None], tried, numbers)
    return numbers, scales, zeros
