"""A weight that its checkpoint holds quantized: the numbers and scales as they were published, not yet read.

It knows a format by its name in `builder.quant` and gives the parts that the format's own `pack` would give, so that
what is compiled from them is the checkpoint bit for bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32, spread
from builder.checkpoint.rows import ANY, RowScales
from builder.errors import CheckpointError

Parts = tuple[NDArray[Any], ...]
"""Numbers `[out, in]` and scales `[out, groups]`; then, of uint4, zero points `[out, groups]`; of nvfp4, whose scales are
E4M3, one float32 `[]` that they are multiplied by."""

FORMATS = ("int8", "int4", "uint4", "fp8", "nvfp4")
SIGNED = ("int4",)
"""Formats whose scales may be negative: -8 has no counterpart, so the sign of a scale says something."""
LARGEST = {"int8": 128.0, "int4": 8.0, "uint4": 15.0, "fp8": 448.0, "nvfp4": 6.0}
"""The largest magnitude of a number of each format."""


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """One weight `[out, in]`, and how to read its parts."""

    name: str
    """As if it were float: `....weight`."""
    format: str
    """One of FORMATS."""
    group: int
    """Inputs that share a scale; 0 for one scale per output."""
    shape: tuple[int, int]
    scales_stored: str
    """Number type of the scales in the file."""
    num_bytes: int
    """Bytes of all its parts in the file."""
    load: Callable[[], Parts]
    """Read the parts without checks; the scheme's own."""
    rows: str = ANY
    """How the rows that it is multiplied with are rounded: a kind of `rows.py`, or one that isn't implemented."""
    row_scales: RowScales = field(default_factory=RowScales)

    def read(self) -> Parts:
        """Read numbers and scales exactly as stored; float16 and bfloat16 scales are widened to float32.

        Raises:
            CheckpointError: a scale is no positive finite number, a number is NaN, or the file became shorter.
        """
        parts = self.load()
        numbers, scales, *rest = parts
        factors = [scales.astype(np.float32), *(rest if self.format == "nvfp4" else ())]
        for factor in factors:
            if not np.isfinite(factor).all():
                self._refuse("a scale that is infinite or no number")
            if self.format not in SIGNED and (factor < 0).any():
                self._refuse("a negative scale")
        reach = np.abs(factors[0]).max(initial=0) * np.prod(factors[1:], dtype=np.float64)
        if reach * LARGEST[self.format] > np.finfo(np.float32).max:
            self._refuse(f"a scale of {reach:.3g}, with which its numbers may be infinite")
        if self.format in ("fp8", "nvfp4") and not np.isfinite(numbers.astype(np.float32)).all():
            self._refuse("a number that is NaN")
        for factor in factors:
            if (factor == 0).any() and self._steps(parts)[self._lost(factor)].any():
                self._refuse("a scale of 0 before numbers that are not 0")
        return parts

    def dequantize(self) -> Float32:
        """Give the float32 weights `[out, in]` that it stands for, inputs in the order of the model's.

        Raises:
            CheckpointError: as `read`.
        """
        parts = self.read()
        scales = parts[1].astype(np.float32)
        if self.format == "nvfp4":
            scales *= parts[2]
        weight: Float32 = self._steps(parts) * spread(scales, self.group, self.shape[1])
        if self.row_scales.order is None:
            return weight
        found = np.empty_like(weight)
        found[:, self.row_scales.order()] = weight
        return found

    def _steps(self, parts: Parts) -> Float32:
        """Give the numbers less their zero points."""
        steps: Float32 = parts[0].astype(np.float32)
        if self.format == "uint4":
            steps -= spread(parts[2].astype(np.float32), self.group, self.shape[1])
        return steps

    def _lost(self, factor: Float32) -> NDArray[np.bool_]:
        """Tell which weights `[out, in]` a factor makes 0."""
        if factor.ndim == 2:
            lost: NDArray[np.bool_] = spread(factor, self.group, self.shape[1]) == 0
            return lost
        return np.full(self.shape, bool(factor == 0))

    def _refuse(self, what: str) -> None:
        raise CheckpointError(f"tensor {self.name} has {what}; download the checkpoint again")
