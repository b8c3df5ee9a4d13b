"""Values from files of the user, typed and bounded by msgspec: whatever a file holds, it is read or refused by place."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from builder.errors import UserError

Kind = TypeVar("Kind")


def of_json(place: str, text: str | bytes, kind: type[Kind]) -> Kind:
    """Read one JSON value; a member that is null is as good as absent.

    Raises:
        UserError: it is no JSON, or not of its kind; the message begins with `place`.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise UserError(f"{place} is not JSON that can be read: {error}") from error
    if isinstance(value, dict):
        value = {name: member for name, member in value.items() if member is not None}
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _wrong(place, error) from error


def of_texts(place: str, texts: Mapping[str, str | None], kind: type[Kind]) -> Kind:
    """Read named texts, which spell numbers where `kind` has them; an empty one is as good as absent.

    Raises:
        UserError: they are not of their kind; the message begins with `place`.
    """
    given = {name: text for name, text in texts.items() if text}
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _wrong(place, error) from error


def _wrong(place: str, error: msgspec.ValidationError) -> UserError:
    """Say what a field must be; msgspec quotes names of fields, and no value."""
    return UserError(f"{place}: {str(error).replace('$.', '')}")
