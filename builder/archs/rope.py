"""Rotary position tables: cosine and sine of every position and frequency, with the scaling folded in.

Kinds: `default`; `linear` (all frequencies divided by the factor); `llama3` (long wavelengths divided by the
factor, short ones kept, a smooth ramp between: the rule published with Llama 3.1); `factors` (one divisor
per frequency, which is how GGUF stores the llama3 rule).
"""

import math

import numpy as np
from numpy.typing import NDArray

from builder.artifact.config import RopeConfig

Float32 = NDArray[np.float32]


def rope_tables(rope: RopeConfig, head_dim: int, max_positions: int) -> tuple[Float32, Float32]:
    """Give cosines and sines, each `[max_positions, D / 2]`.

    Angles are taken in float32, position times frequency, as the models were trained.
    """
    angles = np.outer(np.arange(max_positions, dtype=np.float32), frequencies(rope, head_dim))
    return np.cos(angles), np.sin(angles)


def frequencies(rope: RopeConfig, head_dim: int) -> Float32:
    """Give the angle per position of each pair of dimensions, `[D / 2]`."""
    exponents = np.arange(0, head_dim, 2, dtype=np.float32) / np.float32(head_dim)
    plain = (1.0 / np.float32(rope.theta) ** exponents).astype(np.float32)
    scaled: Float32 = (plain / _divisors(rope, plain)).astype(np.float32)
    return scaled


def _divisors(rope: RopeConfig, plain: Float32) -> Float32:
    if rope.kind == "default":
        return np.ones_like(plain)
    if rope.kind == "linear":
        return np.full_like(plain, rope.factor)
    if rope.kind == "factors":
        factors: Float32 = np.asarray(rope.factors, np.float32)
        return factors
    if rope.kind == "llama3":
        turns = rope.original_max_positions * plain / np.float32(2 * math.pi)
        ramp = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
        kept = np.clip(ramp, 0, 1)
        ramped: Float32 = 1 / (kept + (1 - kept) / np.float32(rope.factor))
        return ramped.astype(np.float32)
    raise AssertionError(f"no rule for rope kind {rope.kind}")
