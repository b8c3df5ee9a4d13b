"""Streams are Poisson, the same for one seed, and rates change only the time."""

from collections import Counter
from dataclasses import replace
from statistics import fmean, pstdev

import pytest

from builder.errors import UserError
from triton_backend.simulation.arrivals import Arrival, at_rate, draw_arrivals, mean_rate
from triton_backend.simulation.lengths import read_lengths


def draw(count: int = 5000, seed: int = 3) -> list[Arrival]:
    lengths = read_lengths("exponential:100")
    return draw_arrivals(count, prompt=lengths, answer=lengths, max_seq_len=200, seed=seed)


def test_gaps_are_as_irregular_as_a_poisson_stream() -> None:
    times = [arrival.at_s for arrival in draw()]
    gaps = [later - earlier for earlier, later in zip([0.0, *times], times, strict=False)]
    assert fmean(gaps) == pytest.approx(1.0, rel=0.05)
    assert pstdev(gaps) == pytest.approx(1.0, rel=0.08)


def test_prompt_and_answer_fit_together() -> None:
    for arrival in draw():
        assert arrival.num_prompt >= 1
        assert arrival.num_answer >= 1
        assert arrival.num_prompt + arrival.num_answer <= 200


def test_one_seed_gives_one_stream() -> None:
    assert draw() == draw()
    assert draw() != draw(seed=4)


def test_of_four_tenants_the_first_has_about_half_and_nothing_else_changes() -> None:
    lengths = read_lengths("exponential:100")
    several = draw_arrivals(
        5000, prompt=lengths, answer=lengths, max_seq_len=200, seed=3, num_tenants=4
    )
    counts = Counter(arrival.tenant for arrival in several)
    assert counts["1"] == pytest.approx(5000 * 12 / 25, rel=0.05)
    assert counts["4"] == pytest.approx(5000 * 3 / 25, rel=0.1)
    assert [replace(arrival, tenant="1") for arrival in several] == draw()


def test_a_rate_changes_the_time_and_nothing_else() -> None:
    slow = draw(count=100)
    fast = at_rate(slow, 20.0)
    assert mean_rate(fast) == pytest.approx(20.0)
    for before, after in zip(slow, fast, strict=True):
        assert replace(after, at_s=before.at_s) == before


def test_a_stream_that_begins_later_is_the_same_stream() -> None:
    steady = [Arrival(0.5 * n, 1, 1) for n in range(9)]
    late = [replace(arrival, at_s=1000.0 + arrival.at_s) for arrival in steady]
    assert mean_rate(late) == mean_rate(steady) == 2.0
    assert at_rate(late, 4.0) == at_rate(steady, 4.0)
    assert [arrival.at_s for arrival in at_rate(late, 4.0)][:3] == [0.0, 0.25, 0.5]


@pytest.mark.parametrize("times", [(0.0,), (7.0,), (5.0, 5.0), (0.0, 5e-324)])
def test_a_stream_that_comes_at_once_has_no_rate(times: tuple[float, ...]) -> None:
    with pytest.raises(UserError, match="all requests come at once"):
        at_rate([Arrival(at_s, 1, 1) for at_s in times], 1.0)


def test_a_stream_longer_than_the_clock_can_tell_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"at 1e-20 requests/s, 100 requests take .* at most 1e\+09"
    ):
        at_rate(draw(count=100), 1e-20)
