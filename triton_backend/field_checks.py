"""Checks of the fields of a request: what was given, what is allowed, and never a word of a prompt."""

from collections.abc import Sequence

from builder.errors import RequestError


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Refuse what is not a number from `low` to `high`.

    Raises:
        RequestError: names the field.
    """
    # Not "value < low or value > high": that would let NaN through.
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:  # type: ignore[operator]
        raise RequestError(f"{name} must be a number from {low:g} to {high:g}; got {shown(value)}.")


def check_integer(name: str, value: object, low: int, high: int) -> None:
    """Refuse what is not an integer from `low` to `high`.

    Raises:
        RequestError: names the field.
    """
    if type(value) is not int or not low <= value <= high:
        raise RequestError(f"{name} must be an integer from {low} to {high}; got {shown(value)}.")


def check_bool(name: str, value: object) -> None:
    """Refuse what is neither true nor false.

    Raises:
        RequestError: names the field.
    """
    if type(value) is not bool:
        raise RequestError(f"{name} must be true or false; got {shown(value)}.")


def check_type(name: str, value: object, kind: type) -> None:
    """Refuse what is not of a type.

    Raises:
        RequestError: names the field.
    """
    if not isinstance(value, kind):
        raise RequestError(f"{name} must be a {kind.__name__}; got {shown(value)}.")


def check_count(name: str, values: Sequence[object], most: int, what: str) -> None:
    """Refuse a list that is too long.

    Raises:
        RequestError: names the field.
    """
    check_type(name, values, tuple)
    if len(values) > most:
        raise RequestError(f"{name} must hold at most {most} {what}; got {len(values)}.")


def shown(value: object) -> str:
    """Describe a refused value: numbers by value, anything that may hold text by type and size."""
    if value is None or isinstance(value, bool | float):
        return repr(value)
    if isinstance(value, int):
        # Python refuses to print integers of more than 4,300 digits.
        bits = value.bit_length()
        return repr(value) if bits <= 128 else f"an integer of {bits} bits"
    if isinstance(value, str):
        return f"a str of {len(value)} characters"
    return f"a {type(value).__name__}"
