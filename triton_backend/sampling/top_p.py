"""Top-p: keep the fewest likeliest tokens that hold a share p of the mass. p = 1 keeps all."""

import numpy as np

from triton_backend.sampling.kept import Float64, Kept


def keep_top_p(kept: Kept, top_p: Float64) -> Kept:
    """Keep tokens of each row until they hold `top_p` `[R]` of its mass; the first is always kept.

    The kept mass is the wanted share and what the token that reached it holds beyond. (The mass of a
    whole vocabulary is rounded, so that a share close to 1 may never be reached; then it is the mass.)
    """
    wanted = top_p * kept.mass
    ranks = kept.ranks_reaching(wanted)
    beyond = np.array([wanted[0], wanted[1] + kept.next_weight])
    mass = np.where(ranks < kept.num_tokens, kept.cumulative_at(ranks), beyond)
    return kept.with_mass(np.where(top_p < 1.0, mass, kept.mass))
