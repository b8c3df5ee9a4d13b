"""Groups of weights that share a scale: runs along the inner dimension, the last one of a row cut short."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

CHANNEL = 0
"""For a group: all inputs of an output share one scale."""

Float32 = NDArray[np.float32]


def num_groups(size_in: int, group: int) -> int:
    """Count the groups of a row; the last may be shorter."""
    return -(-size_in // group) if group else 1


def spread(values: NDArray[np.generic], group: int, size_in: int) -> NDArray[Any]:
    """Repeat a part `[out, groups]` for each weight, `[out, in]`."""
    return np.repeat(values, group or size_in, axis=1)[:, :size_in]
