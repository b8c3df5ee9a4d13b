"""Rope in plain numpy."""

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Float32 = NDArray[np.float32]


def rotate(heads: Float64, cosines: Float32, sines: Float32) -> Float64:
    """Turn heads `[T, H, D]` by the angles `[T, D / 2]` of their tokens."""
    first, second = np.split(heads, 2, axis=2)
    cos, sin = cosines[:, None], sines[:, None]
    return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=2)
