"""What the rows that a weight is multiplied with become first: kinds of rounding, by what shares a scale.

Fixed scales are known when a model is compiled; all others come from the rows themselves when a step runs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32

ANY = "any"
"""As the target likes: integer kernels round rows in groups of their own."""
FLOAT = "float"
TOKEN = "token"  # noqa: S105 - a token of text
BLOCK = "token and 128 inputs"
TENSOR = "tensor, fixed"
SIXTEEN = "16 inputs, in a fixed one of the tensor"
"""Of NVFP4: E4M3 scales as they come, times one float32 scale that is fixed."""
FIXED = (TENSOR, SIXTEEN)
"""Kinds with a scale that a checkpoint or calibration must give."""
BLOCK_SIZE = 128


@dataclass(frozen=True, slots=True, eq=False)
class RowScales:
    """What a checkpoint says of the rows of one layer."""

    fixed: Callable[[], Float32] | None = None
    """Read the one scale `[]` that all rows are divided by."""
    factors: Callable[[], Float32] | None = None
    """Read what rows are multiplied with first, `[in]`: smoothing that no layer before could take."""
    order: Callable[[], NDArray[np.int64]] | None = None
    """Read which number of a row, before all else, each input of the weight is multiplied with, `[in]`; its own without."""
