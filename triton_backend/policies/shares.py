"""How many tokens each tenant was served: the counters of the policy `fair`.

A tenant that comes back after a while starts with at least what the least served of the others has: idleness is
no credit. What it had more stays: to go and to come back is no way out of a debt.
"""

from collections import Counter
from collections.abc import Mapping

MOST_IDLE = 1024
"""Counters kept of tenants that are away; beyond, the lowest are dropped, which are the least of a debt."""


class Shares:
    """A counter per tenant. Tenants are active while any sequence of theirs waits or runs."""

    def __init__(self) -> None:
        self._served: dict[str, int] = {}
        self._num_sequences: Counter[str] = Counter()

    @property
    def served(self) -> Mapping[str, int]:
        """Tokens charged to each tenant; all that are active are in it."""
        return self._served

    def enter(self, tenant: str) -> None:
        """Take note of a new sequence of a tenant."""
        if not self._num_sequences[tenant]:
            least = min((self._served[other] for other in self._num_sequences), default=0)
            self._served[tenant] = max(self._served.get(tenant, 0), least)
        self._num_sequences[tenant] += 1

    def charge(self, tenant: str, num_tokens: int) -> None:
        """Add tokens that were computed for an active tenant."""
        self._served[tenant] += num_tokens

    def leave(self, tenant: str) -> None:
        """Take note that a sequence of a tenant is over."""
        self._num_sequences[tenant] -= 1
        if self._num_sequences[tenant]:
            return
        del self._num_sequences[tenant]
        if not self._num_sequences:
            # Nobody is left to be compared with.
            self._served.clear()
        elif len(self._served) > len(self._num_sequences) + MOST_IDLE:
            idle = self._served.keys() - self._num_sequences.keys()
            del self._served[min(idle, key=lambda name: self._served[name])]
