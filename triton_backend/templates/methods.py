"""Every method and attribute of data that a template may use.

Names that are not in the tables here do not exist for a template. What can make much out of little
works out the size of its result before making it.
"""

import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.runtime import LoopContext

from triton_backend.templates.meter import CHARACTERS_PER_WORK, ELEMENT_SIZE, Meter, OverLimitError

Function = Callable[..., Any]

MAX_WIDTH = 256
"""Largest width of a format field, in characters."""
MAX_STRIPPED = 64


def replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    """Replace `old` by `new`, at most `count` times where it is not negative."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    meter.check_size(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def join(meter: Meter, text: str, values: Iterable[object]) -> str:
    """Join values, with `text` between them."""
    pieces = [meter.text(value) for value in meter.each(values)]
    meter.check_size(sum(map(len, pieces)) + len(text) * len(pieces))
    return text.join(pieces)


def split(meter: Meter, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    """Split at `sep`, or at runs of white space."""
    meter.check_size(_size_of_parts(text, sep))
    return text.split(sep, maxsplit)


def rsplit(meter: Meter, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    """Split at `sep`, or at runs of white space, from the end."""
    meter.check_size(_size_of_parts(text, sep))
    _pay_backward(meter, text, sep or "")
    return text.rsplit(sep, maxsplit)


def rpartition(meter: Meter, text: str, sep: str) -> tuple[str, str, str]:
    """Cut in three at the last `sep`."""
    _pay_backward(meter, text, sep)
    return text.rpartition(sep)


def rfind(meter: Meter, text: str, sub: str, *bounds: int) -> int:
    """Give the last place of `sub`, or -1."""
    _pay_backward(meter, text, sub)
    return text.rfind(sub, *bounds)


def rindex(meter: Meter, text: str, sub: str, *bounds: int) -> int:
    """Give the last place of `sub`."""
    _pay_backward(meter, text, sub)
    return text.rindex(sub, *bounds)


def strip(meter: Meter, text: str, chars: str | None = None) -> str:
    """Take characters off both ends."""
    _pay_for_each(meter, text, chars)
    return text.strip(chars)


def lstrip(meter: Meter, text: str, chars: str | None = None) -> str:
    """Take characters off the beginning."""
    _pay_for_each(meter, text, chars)
    return text.lstrip(chars)


def rstrip(meter: Meter, text: str, chars: str | None = None) -> str:
    """Take characters off the end."""
    _pay_for_each(meter, text, chars)
    return text.rstrip(chars)


def splitlines(meter: Meter, text: str, keepends: bool = False) -> list[str]:
    """Split at line ends."""
    meter.check_size(ELEMENT_SIZE * len(text))
    return text.splitlines(keepends)


def format_fields(meter: Meter, text: str, *args: object, **kwargs: object) -> str:
    """Fill the fields of `text`; a field names an argument, never a part of one."""
    largest = sum(len(meter.text(value)) for value in (*args, *kwargs.values()))
    num_fields = text.count("{")
    meter.check_size(len(text) + num_fields * (largest + MAX_WIDTH))
    meter.spend(num_fields)
    return _Formatter(meter).vformat(text, args, kwargs)


class _Formatter(string.Formatter):
    def __init__(self, meter: Meter) -> None:
        self._meter = meter

    def get_field(
        self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[Any, int | str]:
        if "." in field_name or "[" in field_name:
            raise SecurityError("a format field reaches into its argument")
        name = int(field_name) if field_name.isdecimal() else field_name
        return self.get_value(name, args, kwargs), name

    def format_field(self, value: Any, format_spec: str) -> str:
        digits = "".join(c if c.isdecimal() else " " for c in format_spec).split()
        if any(int(number) > MAX_WIDTH for number in digits):
            raise SecurityError("a format field is too wide")
        if isinstance(value, str | int | float):
            return format(value, format_spec)
        return format(self._meter.text(value), format_spec)


def _pay_backward(meter: Meter, text: str, sub: str) -> None:
    """Pay for a search from the end, which takes time by the product of the lengths at worst."""
    meter.spend(len(text) * len(sub) // CHARACTERS_PER_WORK)


def _pay_for_each(meter: Meter, text: str, chars: str | None) -> None:
    """Pay for looking each character of `text` up in `chars`."""
    if chars is not None and len(chars) > MAX_STRIPPED:
        raise OverLimitError(f"characters to strip ({MAX_STRIPPED})")
    meter.read(text)


def _size_of_parts(text: str, sep: str | None) -> int:
    num_parts = len(text) // 2 if sep is None else text.count(sep)
    return len(text) + ELEMENT_SIZE * (num_parts + 1)


TEXT_METHODS: Mapping[str, Function] = {
    "format": format_fields,
    "join": join,
    "lstrip": lstrip,
    "replace": replace,
    "rfind": rfind,
    "rindex": rindex,
    "rpartition": rpartition,
    "rsplit": rsplit,
    "rstrip": rstrip,
    "split": split,
    "splitlines": splitlines,
    "strip": strip,
}
"""Methods of text that take the meter and the text first."""

ATTRIBUTES: Mapping[type, frozenset[str]] = {
    str: frozenset(
        [
            "capitalize",
            "casefold",
            "count",
            "endswith",
            "find",
            "index",
            "isalnum",
            "isalpha",
            "isascii",
            "isdecimal",
            "isdigit",
            "islower",
            "isnumeric",
            "isspace",
            "istitle",
            "isupper",
            "lower",
            "partition",
            "removeprefix",
            "removesuffix",
            "startswith",
            "swapcase",
            "title",
            "upper",
        ]
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count", "index"}),
    tuple: frozenset({"count", "index"}),
    LoopContext: frozenset(
        [
            "changed",
            "cycle",
            "depth",
            "depth0",
            "first",
            "index",
            "index0",
            "last",
            "length",
            "nextitem",
            "previtem",
            "revindex",
            "revindex0",
        ]
    ),
}
"""Attributes whose Python meaning is harmless: none of them makes much out of little."""
