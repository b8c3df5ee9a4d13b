"""Moves a power of two from smoothed weights to the rows that they are multiplied with: nothing of what comes out changes.

Smoothing that divides rows by their peaks leaves weights as large as those peaks: 18,554 in a layer of SmolLM2-135M, and
scales that half precision can't hold. Factors of rows become 1 or more, so that no weight is larger than before smoothing.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from builder.checkpoint.groups import Float32
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.rows import RowScales
from builder.quant.groups import Parts


def balanced(weight: QuantizedWeight) -> tuple[Callable[[], Parts], RowScales]:
    """Give how to read a weight's parts and what is fixed of its rows, both exact, with factors from 1 on.

    Weights whose rows have no factors, or no fixed scale, are as they are.
    """
    scales = weight.row_scales
    if scales.fixed is None or scales.factors is None:
        return weight.read, scales
    read_fixed, read_factors = scales.fixed, scales.factors

    @cache
    def shift() -> np.float32:
        return _power_below(read_factors())

    def read() -> Parts:
        numbers, factors, *rest = weight.read()
        return numbers, factors.astype(np.float32) * shift(), *rest

    return read, RowScales(lambda: read_fixed() / shift(), lambda: read_factors() / shift())


def _power_below(factors: Float32) -> np.float32:
    """Give the largest power of two that no factor is below; 1 where none is above 0."""
    least = factors[factors > 0].min(initial=np.inf)
    return np.float32(2.0 ** np.floor(np.log2(least))) if np.isfinite(least) else np.float32(1)
