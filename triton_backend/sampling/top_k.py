"""Top-k: keep the k likeliest tokens. k = 0 and k >= V keep all."""

import numpy as np

from triton_backend.sampling.kept import Int64, Kept

_ROUNDING = 1.0 + 1e-9
"""More than the rounding of a sum of a million weights."""


def keep_top_k(kept: Kept, top_k: Int64) -> Kept:
    """Keep the `top_k` `[R]` likeliest tokens of each row; their own weight is the new mass."""
    is_cut = (top_k > 0) & (top_k < kept.vocab_size)
    mass = kept.cumulative_at(top_k - 1)
    num_missing = np.maximum(top_k - kept.num_tokens, 0)
    most = np.where(num_missing, (mass + num_missing * kept.next_weight) * _ROUNDING, mass)
    return kept.with_mass(np.where(is_cut, [mass, most], kept.mass))
