"""Seconds as an option: a number that a clock and a server can take."""

import math
from typing import Any

import click

DAY_S = 86_400.0


class Seconds(click.FloatRange):
    """From 0 to a day; what is not a number is refused, though it is neither below nor above."""

    def __init__(self) -> None:
        """Set the range."""
        super().__init__(min=0, max=DAY_S)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read a number of seconds."""
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value} is not a number of seconds.", param, ctx)
        return seconds
