"""Buckets hold what is not above their bounds, and every bound is a published one."""

import pytest

from triton_backend import histogram
from triton_backend.histogram import Histogram

BOUNDS = [
    histogram.QUEUE_BOUNDS_S,
    histogram.FIRST_TOKEN_BOUNDS_S,
    histogram.INTER_TOKEN_BOUNDS_S,
    histogram.END_TO_END_BOUNDS_S,
]


def test_a_value_on_a_bound_belongs_below_it() -> None:
    seen = Histogram((1.0, 2.0))
    for value in (0.0, 1.0, 1.5, 2.0, 2.5, 9.0):
        seen.observe(value)
    assert seen.counts == [2, 2, 2]
    assert seen.count == 6
    assert seen.total == 16.0


@pytest.mark.parametrize("bounds", BOUNDS)
def test_bounds_ascend(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert bounds[0] > 0
