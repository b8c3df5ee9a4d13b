"""Shortest remaining processing time, as far as it is known: the prompt. Answers are as long as they will be.

It serves most requests sooner than their order of arrival would, at the cost of the few long ones.
"""

from triton_backend.policies.policy import AGEING_TOKENS_PER_S, View
from triton_backend.sequence import Sequence


def key(sequence: Sequence, view: View) -> float:  # noqa: ARG001
    """Give the tokens of the prompt, made up for by waiting."""
    return sequence.num_prompt + AGEING_TOKENS_PER_S * sequence.arrived_s
