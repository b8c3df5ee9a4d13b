"""Fair shares: whose tenant was served the fewest tokens goes first (virtual token counters, arXiv 2401.00588).

Tokens of prompts (those computed) and of answers weigh the same.
"""

from triton_backend.policies.policy import View
from triton_backend.sequence import Sequence


def key(sequence: Sequence, view: View) -> float:
    """Give what the tenant was charged."""
    return view.served[sequence.request.tenant]
