"""Numbers as options: within bounds, and never what is not a number."""

import math
from typing import Any

import click

DAY_S = 86_400.0
COUNT = click.IntRange(1, 999_999_999)


class FiniteRange(click.FloatRange):
    """A range that also refuses NaN, which is neither below nor above it."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number):
            self.fail(f"{value} is not a number.", param, ctx)
        return number


class NumberList(click.ParamType[tuple[float, ...]]):
    """Numbers above 0 and up to a bound, with commas between them; each counts once."""

    name = "numbers"

    def __init__(self, high: float) -> None:
        """Set the bound."""
        self._high = high

    def convert(
        self,
        value: str | tuple[float, ...],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[float, ...]:
        """Read a list of numbers."""
        if isinstance(value, tuple):
            return value
        try:
            numbers = tuple(dict.fromkeys(float(part) for part in value.split(",")))
        except ValueError:
            numbers = ()
        if not numbers or not all(0 < number <= self._high for number in numbers):
            problem = f"is no list of numbers above 0 and up to {self._high:g}, such as 0.5,1,1.5"
            self.fail(f"{value!r} {problem}", param, ctx)
        return numbers
