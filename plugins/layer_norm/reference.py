"""LayerNorm in plain numpy."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def layer_norm(
    rows: Float32, weight: Float32, bias: Float32 | None, *, eps: float
) -> NDArray[np.float64]:
    """Give the normed rows `[T, hidden]`."""
    wide = rows.astype(np.float64)
    centred = wide - wide.mean(axis=1, keepdims=True)
    normed: NDArray[np.float64] = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + eps)
    return normed * weight + (0 if bias is None else bias)
