"""What a policy is, and what it may look at besides the sequence that waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from triton_backend.sequence import Sequence

AGEING_TOKENS_PER_S = 100
"""What waiting makes up for, under policies that look at lengths: a prompt of 2,000 tokens can be overtaken for 20 s.

All who wait age alike, so two keys never change places, and nobody is overtaken by those who arrive later than that.
"""


@dataclass(frozen=True, slots=True)
class View:
    """The state of the scheduler, as far as policies may look at it."""

    served: Mapping[str, int]
    """Tokens charged to each tenant that has requests here."""
    count_reusable: Callable[[Sequence], int]
    """Count the tokens of a sequence whose KV is cached."""


class Policy(NamedTuple):
    """An order of those who wait and never ran."""

    key: Callable[[Sequence, View], float]
    is_steady: bool
    """The key of a sequence stays as it was on arrival."""
