"""Rope in plain numpy."""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


def rotate(heads: Float64, cosines: Float32, sines: Float32) -> Float64:
    """Turn the first R dimensions of heads `[T, H, D]` by the angles `[T, R / 2]` of their tokens."""
    first, second, rest = np.split(heads, [cosines.shape[1], 2 * cosines.shape[1]], axis=2)
    return np.concatenate([*_turned(first, second, cosines, sines), rest], axis=2)


def rotate_neighbours(heads: Float64, cosines: Float32, sines: Float32) -> Float64:
    """Turn the same dimensions, each pair of neighbours by one angle."""
    dims = 2 * cosines.shape[1]
    turned = heads.copy()
    turned[..., 0:dims:2], turned[..., 1:dims:2] = _turned(
        heads[..., 0:dims:2], heads[..., 1:dims:2], cosines, sines
    )
    return turned


def _turned(
    first: Float64, second: Float64, cosines: Float32, sines: Float32
) -> tuple[Float64, Float64]:
    cos: Float64 = cosines[:, None].astype(np.float64)
    sin: Float64 = sines[:, None].astype(np.float64)
    return first * cos - second * sin, second * cos + first * sin
