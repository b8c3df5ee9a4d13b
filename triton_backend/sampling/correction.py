"""Corrects a log-sum-exp for edits of a row, by what they took away and what they added.

It costs a fifth of a sum over the row. What is taken away may be nearly all there was, and the executor's own
sum is only so exact: so a correction comes with how far it may be off. A draw that this leaves open sums anew.
"""

import math

import numpy as np

from builder.artifact.step import Float32

TRUST = 1e-4
"""The relative error of a sum over exponentials that is allowed for: a hundred times that of float32."""
_ROUNDING = 2.0**-22
"""More than the relative error of a logarithm in float32."""
_MOST_CHANGED = 4
"""A row of which more than one in so many logits changed is summed anew, as it costs no more."""


def correct(
    logsumexp: float, own: Float32, edited: Float32, temperature: float
) -> tuple[float, float] | None:
    """Give the log-sum-exp of `edited` `[V]` at a temperature and how far it may be off.

    `logsumexp` is that of the logits before, `own` `[V]`. None where it pays to sum anew: most of the row was changed, the
    correction tells too little, or something is no finite number.
    """
    changed = np.flatnonzero(own != edited)
    if len(changed) * _MOST_CHANGED > len(own):
        return None
    rows = np.array([own[changed], edited[changed]], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):  # told below: no comparison with NaN holds
        taken, added = np.exp(rows / temperature - logsumexp).sum(axis=1).tolist()
    mass = 1.0 - taken + added
    error = (1.0 + added) * (TRUST + _ROUNDING * abs(logsumexp))
    if not error < mass / 2:
        return None
    return logsumexp + math.log(mass), -math.log1p(-error / mass)
