"""Logit bias: a number added to the logits of some ids, before any other link. -100, the least, is a ban."""

from dataclasses import dataclass

import numpy as np

from builder.artifact.step import Float32
from triton_backend.request import MAX_BIAS
from triton_backend.rows import LogitRow


@dataclass(frozen=True, slots=True)
class Biases:
    """The (id, bias) pairs of one row; each id occurs once."""

    pairs: tuple[tuple[int, float], ...]

    def keeps(self, token_id: int) -> bool:
        """See `Edit`."""
        return all((bias >= 0) if each == token_id else (bias <= 0) for each, bias in self.pairs)

    def apply(self, logits: Float32) -> None:
        """See `Edit`."""
        ids, biases = zip(*self.pairs, strict=True)
        added = np.array(biases, np.float64)
        # At a high temperature 100 less is still drawn now and then; who sends the least wants it never.
        added[added == -MAX_BIAS] = -np.inf
        logits[list(ids)] += added


def biases_of(row: LogitRow) -> Biases | None:
    """Give the biases of a row."""
    pairs = row.sequence.request.params.logit_bias
    return Biases(pairs) if pairs else None
