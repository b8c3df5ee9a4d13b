"""Counts of durations by fixed upper bounds, as Prometheus counts them.

It knows nothing of requests. The bounds are part of what is published: a change breaks dashboards.
"""

from bisect import bisect_left
from dataclasses import dataclass, field

QUEUE_BOUNDS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
FIRST_TOKEN_BOUNDS_S = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
)  # fmt: skip
INTER_TOKEN_BOUNDS_S = (
    0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5,
)  # fmt: skip
END_TO_END_BOUNDS_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0)


@dataclass(slots=True)
class Histogram:
    """How many values fell into each bucket, and their sum."""

    bounds: tuple[float, ...]
    """Upper bounds of the buckets, in seconds, ascending; a value on a bound belongs below it."""
    counts: list[int] = field(init=False)
    """Values per bucket, not cumulative; the last bucket takes all above the last bound."""
    total: float = field(init=False, default=0.0)
    """Sum of all values."""

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    @property
    def count(self) -> int:
        """Count the values of all buckets."""
        return sum(self.counts)
