"""Those first who can reuse the most cached tokens, before their blocks are evicted for others."""

from triton_backend.policies.policy import AGEING_TOKENS_PER_S, View
from triton_backend.sequence import Sequence


def key(sequence: Sequence, view: View) -> float:
    """Give the tokens that can be reused, negative; whoever waits makes up for them."""
    return AGEING_TOKENS_PER_S * sequence.arrived_s - view.count_reusable(sequence)
