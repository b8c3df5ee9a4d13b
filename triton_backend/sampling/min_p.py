"""Min-p: keep the tokens at least p times as likely as the likeliest. p = 0 keeps all.

It looks at no sum, so before or after top-k it keeps the same.
"""

import numpy as np

from triton_backend.sampling.kept import Float64, Kept


def keep_min_p(kept: Kept, min_p: Float64) -> Kept:
    """Keep the tokens of each row whose weight is at least `min_p` `[R]`; the likeliest weighs 1."""
    passes = kept.weights >= min_p[:, None]
    all_pass = passes[:, -1]
    count = np.where(all_pass, kept.num_tokens, passes.argmin(axis=1))
    weight = kept.cumulative_at(count - 1)
    # Where all at hand pass, others may pass too, as many as were kept so far.
    is_open = all_pass & (kept.num_tokens < kept.vocab_size)
    least = np.minimum(kept.mass[0], weight)
    most = np.where(is_open, kept.mass[1], np.minimum(kept.mass[1], weight))
    is_cut = (min_p > 0) & ((count < kept.vocab_size) | is_open)
    return kept.with_mass(np.where(is_cut, [least, most], kept.mass))
