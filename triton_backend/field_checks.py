"""Checks of the fields of a request: what was given, what is allowed, and never a word of a prompt."""

from collections.abc import Sequence

from builder.errors import RequestError

MAX_INT32 = 2**31 - 1


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


def check_strings(
    name: str, strings: Sequence[object], *, max_count: int, max_characters: int
) -> None:
    """Check a field that holds several strings, none of them empty.

    Raises:
        RequestError: names the field and the place in it, and quotes nothing.
    """
    check_count(name, strings, max_count, "strings")
    for index, text in enumerate(strings):
        check_type(f"{name}[{index}]", text, str)
        assert isinstance(text, str)
        if not 1 <= len(text) <= max_characters:
            raise RequestError(
                f"{name}[{index}] must have 1 to {max_characters} characters; got {len(text)}."
            )


def check_bias(name: str, pair: object, *, most: float) -> None:
    """Refuse what is not a pair of an id and a bias from -`most` to `most`.

    Raises:
        RequestError: names the field.
    """
    if not isinstance(pair, tuple) or len(pair) != 2:
        raise RequestError(f"{name} must be a pair of id and bias; got {shown(pair)}.")
    check_integer(f"the id of {name}", pair[0], 0, MAX_INT32)
    check_number(f"the bias of {name}", pair[1], -most, most)


def check_ids(name: str, ids: object, *, max_count: int) -> None:
    """Refuse what is not a run of ids, or an empty one.

    Raises:
        RequestError: names the field.
    """
    check_type(name, ids, tuple)
    assert isinstance(ids, tuple)
    if not 1 <= len(ids) <= max_count:
        raise RequestError(f"{name} must have 1 to {max_count} ids; got {len(ids)}.")
    for token_id in ids:
        check_integer(f"an id of {name}", token_id, 0, MAX_INT32)


def is_same(value: object, other: object) -> bool:
    """Tell whether two values of JSON are the same; to Python, true and 1.0 are 1, and false is 0."""
    return type(value) is type(other) and value == other


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
