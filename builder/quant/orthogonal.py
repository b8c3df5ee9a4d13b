"""Orthogonal matrices that spread every number over all others, and can be multiplied by in little time.

One is `diag(signs) (A x B)`, the Kronecker product of two small ones: a Hadamard matrix where the size is a power of two,
else that of the discrete cosine transform (type 2, orthonormal). Everything is in float64: what is rounded afterwards is
the same on every machine.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

INNER = 64
"""Largest size of the inner factor."""
ROWS = 4096
"""Rows multiplied at a time, which bounds the memory for intermediate values."""

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Orthogonal:
    """An orthogonal matrix Q `[size, size]`."""

    signs: Float64
    outer: Float64
    inner: Float64

    @property
    def size(self) -> int:
        """Rows, and columns."""
        return len(self.signs)

    def multiply(
        self, rows: NDArray[np.floating[Any]], scales: NDArray[np.floating[Any]] | None = None
    ) -> Float32:
        """Give `rows diag(scales) Q` for rows `[R, k * size]`: each run of `size` numbers by itself."""
        out = np.empty(rows.shape, np.float32)
        for first in range(0, len(rows), ROWS):
            chunk = rows[first : first + ROWS].astype(np.float64)
            if scales is not None:
                chunk *= scales
            parts = chunk.reshape(-1, self.size) * self.signs
            mixed = parts.reshape(-1, len(self.outer), len(self.inner)) @ self.inner
            mixed = np.einsum("rmp,mn->rnp", mixed, self.outer)
            out[first : first + ROWS] = mixed.reshape(chunk.shape)
        return out


def orthogonal(size: int, seed: int) -> Orthogonal:
    """Make the matrix that a seed names."""
    inner = math.gcd(size, INNER)
    signs = np.random.default_rng(seed).integers(0, 2, size) * 2.0 - 1.0
    return Orthogonal(signs, _factor(size // inner), _factor(inner))


def _factor(size: int) -> Float64:
    if size & (size - 1) == 0:
        found = np.ones((1, 1))
        while len(found) < size:
            found = np.block([[found, found], [found, -found]])
        return found / math.sqrt(size)
    places = np.arange(size)
    cosines = np.cos(np.pi * np.outer(2 * places + 1, places) / (2 * size))
    cosines[:, 0] /= math.sqrt(2)
    basis: Float64 = cosines * math.sqrt(2 / size)
    return basis
