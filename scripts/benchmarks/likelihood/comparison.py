"""Compare readings of one text: ratio of perplexities and agreement of choices, with intervals over chunks.

Tokens of a chunk are no independent samples, chunks nearly are: intervals come from drawing chunks again and again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from likelihood.readings import Reading

NUM_DRAWS = 10_000
PERCENTILES = (2.5, 97.5)
"""Of a 95 % interval."""

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.4f} ({self.low:.4f} to {self.high:.4f})"


def estimate(of_chunks: Float64, *, is_logarithm: bool = False) -> Estimate:
    """Give the mean of numbers of chunks, or its exponential, with the interval of means of drawn chunks."""
    draws = np.random.default_rng(0).integers(0, len(of_chunks), (NUM_DRAWS, len(of_chunks)))
    low, high = np.percentile(of_chunks[draws].mean(axis=1), PERCENTILES)
    numbers = np.array([of_chunks.mean(), low, high])
    return Estimate(*np.round(np.exp(numbers) if is_logarithm else numbers, 5).tolist())


def perplexity(reading: Reading) -> float:
    return round(float(np.exp(-reading.log_likelihoods.mean(dtype=np.float64))), 4)


def perplexity_ratio(reading: Reading, other: Reading) -> Estimate:
    """Give the perplexity over the other's."""
    losses = other.log_likelihoods.astype(np.float64) - reading.log_likelihoods
    return estimate(losses.mean(axis=1), is_logarithm=True)


def agreement(reading: Reading, reference: Reading) -> Estimate:
    """Give the share of tokens at which both choose the same."""
    return estimate((reading.choices == reference.choices).mean(axis=1))


def agreement_gain(reading: Reading, other: Reading, reference: Reading) -> Estimate:
    """Give how much larger the agreement with the reference is than the other's."""
    mine, others = (found.choices == reference.choices for found in (reading, other))
    return estimate(mine.mean(axis=1) - others.mean(axis=1))
