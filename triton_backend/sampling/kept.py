"""The working state of a draw: for each row, the likeliest tokens and how much of them is kept.

What may be drawn is always a prefix of the tokens, largest logit first (ties: lower id first). A prefix
is told by its mass alone, so each step of the chain only lowers the mass. Where the tokens at hand can't
tell it, bounds of it often still decide the draw.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Kept:
    """R rows, of which the M likeliest of V tokens are at hand. The likeliest weighs 1."""

    weights: Float64
    """`[R, M]` weight of each token at hand, largest first."""
    cumulative: Float64
    """`[R, M + 1]` weight of the tokens up to each, summed one by one: the same for every M. The last
    column is infinite, so that every search in a row finds a place."""
    mass: Float64
    """`[2, R]` weight of all kept tokens, at hand or not: at least and at most. Equal when M = V."""
    next_weight: Float64
    """`[R]` what a token not at hand weighs at most; 0 when M = V."""
    vocab_size: int
    """V."""

    @property
    def num_tokens(self) -> int:
        """M."""
        return self.cumulative.shape[1] - 1

    def with_mass(self, mass: Float64) -> "Kept":
        """Keep less (or as much): `mass` `[2, R]`."""
        return replace(self, mass=mass)

    def ranks_reaching(self, wanted: Float64) -> Int64:
        """Give the first rank whose cumulative weight is at least `wanted` `[2, R]`; M if none is."""
        # Where rows are False after True, argmin finds the first False 10 times faster than counting.
        ranks: Int64 = (self.cumulative < wanted[:, :, None]).argmin(axis=2)
        return ranks

    def ranks_passing(self, wanted: Float64) -> Int64:
        """Give the first rank whose cumulative weight is above `wanted` `[2, R]`; M if none is."""
        ranks: Int64 = (self.cumulative <= wanted[:, :, None]).argmin(axis=2)
        return ranks

    def cumulative_at(self, ranks: Int64) -> Float64:
        """Give the cumulative weight at `ranks` `[..., R]`, or at the last token at hand."""
        rows = np.arange(len(self.cumulative))
        weights: Float64 = self.cumulative[rows, np.minimum(ranks, self.num_tokens - 1)]
        return weights
