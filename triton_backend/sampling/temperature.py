"""Temperature: turns the largest logits of each row into weights. Always the first step of a draw."""

import numpy as np

from builder.artifact.step import Float32
from triton_backend.sampling.kept import Float64, Kept


def weigh(logits: Float32, temperatures: Float32, logsumexp: Float64, *, vocab_size: int) -> Kept:
    """Weigh logits `[R, M]`, largest first, at `temperatures` `[R]`; keep the whole vocabulary.

    `logsumexp` `[2, R]` tells the mass of the whole row, at least and at most. It was taken at the temperature as float32, so
    the weights are too; all else is float64.
    """
    num_rows, num_tokens = logits.shape
    scale = temperatures.astype(np.float64)
    largest = logits[:, 0].astype(np.float64)
    weights = np.exp((logits - largest[:, None]) / scale[:, None])
    cumulative = np.empty((num_rows, num_tokens + 1))
    weights.cumsum(axis=1, out=cumulative[:, :-1])
    cumulative[:, -1] = np.inf
    return Kept(
        weights=weights,
        cumulative=cumulative,
        mass=np.exp(logsumexp - largest / scale),
        next_weight=weights[:, -1] if num_tokens < vocab_size else np.zeros(num_rows),
        vocab_size=vocab_size,
    )
