"""Distributions of lengths in tokens, and the words for them.

`fixed:128`, `uniform:16:512`, `exponential:128`, `lognormal:256:1.5` (mean, then standard deviation over mean). Draws
are rounded, and at least 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import log, sqrt
from random import Random

from builder.errors import UserError, unknown_name

MIN_VALUE = 1e-3
MAX_LENGTH = 10_000_000
"""Tokens of a prompt or an answer, more than any model takes; no other number of a distribution is larger either."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of lengths."""

    text: str
    """As it was written."""
    draw_one: Callable[[Random], float]

    def draw(self, random: Random, most: int) -> int:
        """Draw a length from 1 to `most`."""
        return min(most, max(1, round(self.draw_one(random))))


def fixed(length: float) -> Callable[[Random], float]:
    """Give always the same length."""
    return lambda _random: length


def uniform(low: float, high: float) -> Callable[[Random], float]:
    """Give every length of a range as often."""
    if low > high:
        raise UserError(
            f"uniform:{low:g}:{high:g} must go from the shorter length to the longer one"
        )
    return lambda random: random.uniform(low, high)


def exponential(mean: float) -> Callable[[Random], float]:
    """Give lengths that know nothing of how long they are already."""
    return lambda random: random.expovariate(1 / mean)


def lognormal(mean: float, variation: float) -> Callable[[Random], float]:
    """Give mostly short lengths, and a few that are very long, as people's prompts and answers are."""
    variance = log(1 + variation**2)
    return lambda random: random.lognormvariate(log(mean) - variance / 2, sqrt(variance))


KINDS: dict[str, tuple[int, Callable[..., Callable[[Random], float]]]] = {
    "fixed": (1, fixed),
    "uniform": (2, uniform),
    "exponential": (1, exponential),
    "lognormal": (2, lognormal),
}
"""Name to (number of values, distribution)."""


def read_lengths(text: str) -> Lengths:
    """Read a distribution.

    Raises:
        UserError: it is not one of the four, or a number is out of bounds.
    """
    name, *values = text.split(":")
    if name not in KINDS:
        raise UserError(unknown_name("distribution", name, KINDS))
    count, kind = KINDS[name]
    try:
        numbers = [float(value) for value in values]
    except ValueError:
        numbers = []
    if len(numbers) != count or not all(MIN_VALUE <= each <= MAX_LENGTH for each in numbers):
        raise UserError(
            f"{name} needs {count} numbers from {MIN_VALUE:g} to {MAX_LENGTH},"
            f" such as {name}{':128:2'[: 4 * count]}"
        )
    return Lengths(text, kind(*numbers))
