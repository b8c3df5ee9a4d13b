"""Embedding in plain numpy."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def embedding(table: Float32, token_ids: NDArray[np.int32]) -> Float32:
    """Give the rows `[T, hidden]` of `table` `[V, hidden]`."""
    rows: Float32 = table[token_ids]
    return rows
