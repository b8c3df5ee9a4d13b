"""Random token ids of the tiny models."""

import numpy as np


def draw(length: int, seed: int = 0) -> list[int]:
    """Draw ids that every tiny vocabulary has."""
    return np.random.default_rng(seed).integers(0, 256, length).tolist()
