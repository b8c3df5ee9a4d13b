"""RmsNorm in plain numpy."""

import numpy as np
from numpy.typing import NDArray


def rms_norm(
    rows: NDArray[np.float32], weight: NDArray[np.float32], eps: float
) -> NDArray[np.float64]:
    """Give the normed rows `[T, hidden]`."""
    wide = rows.astype(np.float64)
    factor = 1 / np.sqrt((wide * wide).mean(axis=1, keepdims=True) + eps)
    normed: NDArray[np.float64] = wide * factor * weight
    return normed
