"""Weighing values and counting work."""

from collections.abc import Iterator
from typing import Any

import pytest
from jinja2 import Undefined

from triton_backend.templates.meter import (
    ELEMENT_SIZE,
    MAX_GIVEN_BITS,
    MAX_MADE_BITS,
    REMEMBERED_SIZE,
    Meter,
    NotDataError,
    OverLimitError,
    TemplateLimits,
)


def make_meter(**limits: int) -> Meter:
    return Meter(TemplateLimits(**limits))


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("", 0),
        ("abc", 3),
        (None, 1),
        (True, 1),
        (12, 1),
        (1.5, 1),
        (Undefined(), 1),
        ([], 0),
        (["abc", 1], 2 * ELEMENT_SIZE + 4),
        (("abc",), ELEMENT_SIZE + 3),
        ({"ab": ["c"]}, 3 * ELEMENT_SIZE + 3),
        ({"ab": 1}.items(), 3 * ELEMENT_SIZE + 3),
        ({"ab": 1}.keys(), ELEMENT_SIZE + 2),
        ({"ab": 1}.values(), ELEMENT_SIZE + 1),
        (range(5), 5 * ELEMENT_SIZE),
    ],
)
def test_data_weighs_its_characters_and_members(value: object, size: int) -> None:
    assert make_meter().size(value) == size


def test_what_is_there_twice_weighs_twice() -> None:
    inner = ["x" * 1000]
    assert make_meter().size([inner, inner]) == 2 * (2 * ELEMENT_SIZE + 1000)


def test_a_tower_of_references_is_weighed_in_few_steps() -> None:
    meter = make_meter(max_size=2**50, max_work=200)
    value: list[Any] = ["x" * REMEMBERED_SIZE]
    for _ in range(30):
        value = [value, value]
        meter.size(value)
    assert meter.size(value) > 2**30 * REMEMBERED_SIZE


def test_another_value_never_takes_the_weight_of_one_that_is_gone() -> None:
    meter = make_meter()
    for length in range(REMEMBERED_SIZE, REMEMBERED_SIZE + 200):
        assert meter.size(["x" * length]) == ELEMENT_SIZE + length


@pytest.mark.parametrize(
    "value", [object(), len, iter([]), {1}, b"x", [len], {"a": {1}}, (iter([]),)]
)
def test_what_is_no_data_has_no_weight_and_no_text(value: object) -> None:
    with pytest.raises(NotDataError):
        make_meter().size(value)
    with pytest.raises(NotDataError):
        make_meter().text(value)


def test_functions_pass_where_values_are_kept() -> None:
    assert make_meter().keep(len) is len


@pytest.mark.parametrize("value", ["x" * 11, ["x" * 3], [[]] * 2, {"abc": 1}, range(2)])
def test_what_is_too_large_is_not_kept(value: object) -> None:
    with pytest.raises(OverLimitError, match=r"size \(10 characters\)"):
        make_meter(max_size=10).keep(value)


def test_what_is_as_large_as_the_limit_is_kept() -> None:
    meter = make_meter(max_size=10)
    assert meter.keep("x" * 10) == "x" * 10
    meter.check_size(10)


def test_lists_may_be_as_deep_as_the_limit() -> None:
    meter = make_meter(max_depth=3)
    assert meter.keep([[[1]]]) == [[[1]]]
    with pytest.raises(OverLimitError, match=r"depth \(3 lists"):
        meter.keep([[[[1]]]])


def test_depth_counts_through_what_was_weighed_before() -> None:
    meter = make_meter(max_depth=3)
    inner = [["x" * REMEMBERED_SIZE]]
    meter.keep(inner)
    meter.keep([inner])
    with pytest.raises(OverLimitError, match="depth"):
        meter.keep([[inner]])


def test_integers_are_bounded_more_where_a_template_makes_them() -> None:
    meter = make_meter()
    assert meter.keep(2**MAX_MADE_BITS - 1)
    with pytest.raises(OverLimitError, match=f"integers \\({MAX_MADE_BITS} bits"):
        meter.keep(2**MAX_MADE_BITS)
    assert meter.size([2**MAX_GIVEN_BITS - 1]) == ELEMENT_SIZE + 1
    with pytest.raises(OverLimitError, match=f"integers \\({MAX_GIVEN_BITS} bits"):
        meter.size([-(2**MAX_GIVEN_BITS)])


def test_work_ends_at_its_limit() -> None:
    meter = make_meter(max_work=3)
    meter.spend(3)
    with pytest.raises(OverLimitError, match=r"work \(3 operations\)"):
        meter.spend()


def test_long_texts_cost_more_to_read() -> None:
    meter = make_meter(max_work=100)
    meter.read("x" * 6400)
    with pytest.raises(OverLimitError):
        meter.read("x" * 64)


def test_long_lists_cost_more_to_read() -> None:
    with pytest.raises(OverLimitError):
        make_meter(max_work=100).read([0] * 101)
    make_meter(max_work=0).read(len)


def test_each_value_of_a_generator_is_paid_for() -> None:
    def endless() -> Iterator[int]:
        while True:
            yield 1

    taken = []
    with pytest.raises(OverLimitError):
        taken.extend(make_meter(max_work=7).each(endless()))
    assert make_meter(max_work=7).text(1.5) == "1.5"
