"""RowAnswers in plain numpy, by sorting whole rows."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Int32 = NDArray[np.int32]


def argmax(row: Float32) -> int:
    """Give the id of the largest logit, or -1."""
    best = int(row.argmax())
    return best if np.isfinite(row[best]) else -1


def largest(row: Float32, count: int) -> Int32:
    """Give the ids of the `count` largest logits of a row without NaN."""
    order: Int32 = np.lexsort((np.arange(len(row)), -row))[:count].astype(np.int32)
    return order


def logsumexp(row: Float32, temperature: float) -> float:
    """Give the log-sum-exp of `row / temperature`; NaN where a logit is no number."""
    if temperature == 0:
        return 0.0
    if argmax(row) < 0:
        return float("nan")
    scaled = row.astype(np.float64) / temperature
    return float(scaled.max() + np.log(np.exp(scaled - scaled.max()).sum()))
