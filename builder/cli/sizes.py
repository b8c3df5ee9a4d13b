"""Sizes and durations as people write and read them.

`GiB`, `G` and `g` are 2**30 bytes, `GB` is 10**9 bytes, and so on for K, M and T.
"""

import re

import click

BINARY = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
MAX_DIGITS = 20
DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_bytes(text: str) -> int:
    """Read a size such as `512MiB`, `2GB`, `1g` or `1048576`, in bytes.

    Raises:
        ValueError: it is no size, or not a whole number of bytes above zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?b)?|b)?", text.strip(), re.ASCII | re.I)
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes or 512MiB, 2GB, 1g")
    number, letter, unit = match.groups()
    if len(number) > MAX_DIGITS:
        raise ValueError(f"a size of {len(number)} digits is too large")
    units = DECIMAL if (unit or "").lower() == "b" else BINARY
    size = round(float(number) * units[letter.upper()]) if letter else float(number)
    if size != int(size) or size < 1:
        raise ValueError(f"{text!r} is not a whole number of bytes above zero")
    return int(size) if letter or "." in number else int(number)


def format_bytes(size: int) -> str:
    """Give a size with three digits and a decimal unit, such as `538 MB`."""
    if size < 1000:
        return f"{size} B"
    units = iter(("kB", "MB", "GB", "TB"))
    value, unit = size / 1000, next(units)
    while value >= 999.5 and unit != "TB":
        value, unit = value / 1000, next(units)
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def format_duration(seconds: float) -> str:
    """Give a duration such as `12 ms`, `3.4 s` or `2 min 05 s`."""
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s"


class ByteSize(click.ParamType[int]):
    """A click type for sizes in bytes."""

    name = "size"

    def convert(
        self, value: str | int, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Read the size; a wrong one is a usage error."""
        if isinstance(value, int):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)
