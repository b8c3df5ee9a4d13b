"""Random numbers by name."""

import itertools
from statistics import fmean

import pytest

from tests.triton_backend.oracle import number
from triton_backend.sampling.seed import uniform


def test_a_name_has_the_same_number_for_ever() -> None:
    assert uniform(7, 0, 12) == 0.8081100008817473
    assert uniform(-7, 1, 12) == 0.8807251341592621


def test_every_part_of_the_name_matters() -> None:
    names = itertools.product((-(2**63), -1, 0, 1, 2**64 - 1), (0, 1, 2), (0, 1, 2, 1000))
    numbers = [uniform(*name) for name in names]
    assert len(set(numbers)) == len(numbers)


def test_numbers_are_spread_evenly_over_the_unit_interval() -> None:
    numbers = [uniform(1, 0, position) for position in range(4000)]
    assert all(0 <= value < 1 for value in numbers)
    assert fmean(numbers) == pytest.approx(0.5, abs=0.02)
    tenths = [sum(1 for value in numbers if int(value * 10) == tenth) for tenth in range(10)]
    assert all(300 < count < 500 for count in tenths)


def test_numbers_have_53_bits() -> None:
    scaled = [uniform(1, 0, position) * 2**53 for position in range(100)]
    assert all(value == int(value) for value in scaled)
    assert any(int(value) % 2 for value in scaled)


@pytest.mark.parametrize("seed", [0, 5, -5, 2**64 - 1])
def test_the_oracle_of_the_tests_has_the_same_numbers(seed: int) -> None:
    assert [uniform(seed, 0, position) for position in range(9)] == [
        number(seed, position) for position in range(9)
    ]
