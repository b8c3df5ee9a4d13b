"""Distributions have the means that their words say, and wrong words are refused."""

from random import Random
from statistics import fmean

import pytest

from builder.errors import UserError
from triton_backend.simulation.lengths import read_lengths


@pytest.mark.parametrize(
    ("text", "mean", "low", "high"),
    [
        ("fixed:128", 128, 128, 128),
        ("uniform:16:512", 264, 16, 512),
        ("exponential:100", 100, 1, 100_000),
        ("lognormal:256:1.5", 256, 1, 100_000),
    ],
)
def test_draws_have_the_mean_and_the_range_of_their_words(
    text: str, mean: float, low: int, high: int
) -> None:
    lengths, random = read_lengths(text), Random(1)  # noqa: S311
    drawn = [lengths.draw(random, 100_000) for _ in range(40_000)]
    assert fmean(drawn) == pytest.approx(mean, rel=0.05)
    assert min(drawn) >= low
    assert max(drawn) <= high


def test_a_draw_is_cut_to_the_most_there_is_room_for() -> None:
    assert read_lengths("fixed:128").draw(Random(1), 100) == 100  # noqa: S311
    assert read_lengths("fixed:0.2").draw(Random(1), 100) == 1  # noqa: S311


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("normal:3", "unknown distribution 'normal'"),
        ("exponental:3", "Did you mean exponential"),
        ("fixed", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("fixed:0", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("fixed:-3", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("fixed:nan", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("fixed:inf", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("fixed:1:2", "fixed needs 1 numbers from 0.001 to 10000000"),
        ("lognormal:3", "lognormal needs 2 numbers from 0.001 to 10000000"),
        ("lognormal:1e308:1e200", "lognormal needs 2 numbers from"),
        ("lognormal:256:1e200", "lognormal needs 2 numbers from"),
        ("exponential:1e-320", "exponential needs 1 numbers from"),
        ("uniform:9:3", "from the shorter length to the longer"),
    ],
)
def test_a_wrong_distribution_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_lengths(text)


@pytest.mark.parametrize("kind", ["lognormal:{0}:{0}", "exponential:{0}", "uniform:{0}:{0}"])
@pytest.mark.parametrize("bound", ["0.001", "10000000"])
def test_a_draw_at_the_bounds_is_a_length(kind: str, bound: str) -> None:
    lengths, random = read_lengths(kind.format(bound)), Random(1)  # noqa: S311
    assert all(1 <= lengths.draw(random, 100) <= 100 for _ in range(2000))
