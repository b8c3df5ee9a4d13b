"""How far an engine's predictions are from the reference's, token by token and in sum.

Letters: R rows of logits, V vocabulary. Divergences are in nats.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from builder.artifact.step import Float32, Int32

Float64 = NDArray[np.float64]

TAIL_PERCENTILE = 99
LARGEST_LOG = 700.0
"""Of a perplexity or a ratio of two: what lies beyond is shown as its exponential, which a float still holds."""
FARTHEST = np.float32(2.0**120)
"""How far below its row's largest a logit counts, so that differences of two stay finite."""


@dataclass(frozen=True, slots=True)
class TokenFigures:
    """What two engines say of the same tokens, `[R]` each."""

    divergences: Float64
    """Kullback-Leibler divergence of the reference's prediction from the engine's."""
    log_likelihoods: Float64
    """Logarithm of the probability that the engine gives to the token that comes."""
    reference_log_likelihoods: Float64
    agreements: NDArray[np.bool_]
    """Whether both find the same token likeliest."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The same for a whole text."""

    kl_mean: float
    kl_p99: float
    agreement: float
    """Share of tokens at which both find the same one likeliest."""
    perplexity: float
    reference_perplexity: float
    perplexity_ratio: float
    """The engine's perplexity over the reference's."""


def judge(logits: Float32, coming: Int32) -> tuple[Float32, Int32]:
    """Give log-likelihoods of the coming tokens `[R]` and choices, from logits `[R, V]`."""
    top = logits.max(axis=1)
    sums = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
    found = logits[np.arange(len(coming)), coming] - sums
    return found.astype(np.float32), logits.argmax(axis=1).astype(np.int32)


def compare(reference: Float32, given: Float32, coming: Int32) -> TokenFigures:
    """Compare two engines' logits `[R, V]` before the coming tokens `[R]`.

    Differences are taken in float32, as the logits are, and summed in float64: equal rows diverge by exactly 0.
    """
    ours, our_sums = _shifted(given)
    theirs, their_sums = _shifted(reference)
    weights = np.exp(theirs)
    weighted = np.multiply(weights, theirs - ours, out=weights).sum(axis=1, dtype=np.float64)
    divergences = weighted / np.exp(their_sums) - their_sums + our_sums
    places = np.arange(len(coming)), coming
    return TokenFigures(
        divergences=np.maximum(divergences, 0),
        log_likelihoods=ours[places] - our_sums,
        reference_log_likelihoods=theirs[places] - their_sums,
        agreements=reference.argmax(axis=1) == given.argmax(axis=1),
    )


def _shifted(logits: Float32) -> tuple[Float32, Float64]:
    """Give rows less their largest entry, and the logarithm `[R]` of the sum of their exponentials."""
    with np.errstate(over="ignore"):
        shifted: Float32 = np.maximum(logits - logits.max(axis=1, keepdims=True), -FARTHEST)
    return shifted, np.log(np.exp(shifted).sum(axis=1, dtype=np.float64))


def summed(pieces: Iterable[TokenFigures]) -> Figures:
    """Put the figures of all tokens together; there is at least one. All are finite, however bad the engine is."""
    found = list(pieces)
    divergences = np.concatenate([piece.divergences for piece in found])
    ours, theirs = (
        -float(np.concatenate(parts).mean())
        for parts in (
            [piece.log_likelihoods for piece in found],
            [piece.reference_log_likelihoods for piece in found],
        )
    )
    return Figures(
        kl_mean=float(divergences.mean()),
        kl_p99=float(np.percentile(divergences, TAIL_PERCENTILE)),
        agreement=float(np.concatenate([piece.agreements for piece in found]).mean()),
        perplexity=_exponential(ours),
        reference_perplexity=_exponential(theirs),
        perplexity_ratio=_exponential(ours - theirs),
    )


def _exponential(log: float) -> float:
    return math.exp(min(log, LARGEST_LOG))
