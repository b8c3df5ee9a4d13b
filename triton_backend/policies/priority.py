"""By the priority that the request names. Nothing else counts: a lower class can wait for ever."""

from triton_backend.policies.policy import View
from triton_backend.sequence import Sequence


def key(sequence: Sequence, view: View) -> float:  # noqa: ARG001
    """Give the priority; lower goes first."""
    return sequence.request.priority
