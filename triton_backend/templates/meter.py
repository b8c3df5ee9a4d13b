"""What one rendering of a template may use: a count of work, and a size that no value may pass.

All costs are counted, none is timed, so that the same template and messages always come to the same end.
Every value is weighed where it is made; nothing heavier than `max_size` ever exists, so no single
operation takes long, and each operation is paid for. That bounds time and memory together.
"""

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from dataclasses import dataclass
from typing import TypeVar

from jinja2 import Undefined

Value = TypeVar("Value")

ELEMENT_SIZE = 8
"""A member of a list or mapping weighs as much as this many characters, its own size apart."""
CHARACTERS_PER_WORK = 64
ELEMENTS_PER_WORK = 2
REMEMBERED_SIZE = 512
"""Weighing a smaller container again costs less than remembering it."""
MAX_GIVEN_BITS = 2048
"""Size of integers in what a client sends, which a template may write."""
MAX_MADE_BITS = 60
"""Size of integers that a template makes. Their hashes differ; larger ones could share one and make
a set of n of them cost n * n."""


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """Bounds of a template and of one rendering; the defaults end a hostile template in seconds."""

    max_source_characters: int = 2**18
    max_size: int = 2**22
    """Characters of the rendered text, and of any value on the way there."""
    max_work: int = 2**21
    """Operations and loop rounds; long texts and lists count for several."""
    max_depth: int = 64
    """Lists and mappings inside each other."""


class OverLimitError(Exception):
    """A rendering went past one of its limits; the message names it."""


class NotDataError(Exception):
    """A template used a function, macro, loop or namespace where only data can stand."""


class Meter:
    """Counts what one rendering uses."""

    def __init__(self, limits: TemplateLimits) -> None:
        """Begin with nothing used."""
        self._limits = limits
        self._work_left = limits.max_work
        # The entry keeps its container alive, so that no other can get the same id.
        self._weighed: dict[int, tuple[object, int, int]] = {}

    def spend(self, work: int = 1) -> None:
        """Count work.

        Raises:
            OverLimitError: no work is left.
        """
        self._work_left -= work
        if self._work_left < 0:
            raise OverLimitError(f"work ({self._limits.max_work} operations)")

    def check_size(self, size: int) -> None:
        """Refuse a size in characters that no value may have.

        Raises:
            OverLimitError: it is too large.
        """
        if size > self._limits.max_size:
            raise OverLimitError(f"size ({self._limits.max_size} characters)")

    def size(self, value: object) -> int:
        """Give the size of data in characters, everything inside it included.

        Raises:
            OverLimitError: it is too large or too deep, or no work is left.
            NotDataError: it is no data, or holds something that is none.
        """
        return self._weigh(value, 0)[0]

    def keep(self, value: Value) -> Value:
        """Let a new value into the rendering and pay for it; what is no data passes.

        Raises:
            OverLimitError: it is too large or too deep, or no work is left.
        """
        if isinstance(value, int):
            check_bits(value.bit_length(), MAX_MADE_BITS)
        elif isinstance(value, str | list | tuple | dict | range):
            size = self.size(value)
            self.check_size(size)
            self.spend(size // CHARACTERS_PER_WORK)
        return value

    def read(self, value: object) -> None:
        """Pay for an operation that may look at all of `value`; what is no data costs nothing."""
        if isinstance(value, str):
            self.spend(len(value) // CHARACTERS_PER_WORK)
        elif isinstance(value, list | tuple | dict | range):
            self.spend(len(value) + self.size(value) // CHARACTERS_PER_WORK)

    def text(self, value: object) -> str:
        """Give the text of data, as a template writes it.

        Raises:
            NotDataError: it is no data.
        """
        self.spend()
        if isinstance(value, str):
            return value
        self.size(value)
        return str(value)

    def each(self, values: Iterable[Value]) -> Iterator[Value]:
        """Yield `values`, paying for each."""
        for value in values:
            self.spend()
            yield value

    def _weigh(self, value: object, above: int) -> tuple[int, int]:
        """Give the size of `value` and its depth; `above` counts the containers around it."""
        if isinstance(value, str):
            return len(value), 0
        if value is None or isinstance(value, float | Undefined):
            return 1, 0
        if isinstance(value, int):
            check_bits(value.bit_length(), MAX_GIVEN_BITS)
            return 1, 0
        if isinstance(value, range):
            return ELEMENT_SIZE * len(value), 1
        known = self._weighed.get(id(value))
        if known is not None:
            return known[1], known[2]
        return self._weigh_container(value, above)

    def _weigh_container(self, value: object, above: int) -> tuple[int, int]:
        size = depth = 0
        members = _members(value)
        self.spend(1 + len(members) // ELEMENTS_PER_WORK)
        for member in members:
            member_size, member_depth = self._weigh(member, above + 1)
            size += ELEMENT_SIZE + member_size
            depth = max(depth, member_depth)
        depth += 1
        if above + depth > self._limits.max_depth:
            raise OverLimitError(
                f"depth ({self._limits.max_depth} lists or mappings in each other)"
            )
        if size > self._limits.max_size:
            raise OverLimitError(f"size ({self._limits.max_size} characters)")
        is_view = isinstance(value, KeysView | ValuesView | ItemsView)
        if size >= REMEMBERED_SIZE and not is_view:
            self._weighed[id(value)] = (value, size, depth)
        return size, depth


def check_bits(bits: int, most: int) -> None:
    """Refuse an integer of more than `most` bits.

    Raises:
        OverLimitError: it has more.
    """
    if bits > most:
        raise OverLimitError(f"size of integers ({most} bits)")


def _members(value: object) -> list[object]:
    """Give what is directly inside a container."""
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | KeysView | ValuesView | ItemsView):
        return list(value)
    raise NotDataError(f"a {type(value).__name__} is no data")
