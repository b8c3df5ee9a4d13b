"""What a client sends for a chat: checked, copied, and kept from spelling control strings.

Messages of errors name a field by its position, never by what is in it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from builder.errors import RequestError
from triton_backend.segments import ControlStrings

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
KINDS = frozenset({"role", "type"})
MAX_DEPTH = 48
"""Lists and mappings inside each other; a template may still put its own around them."""
SENTINELS = tuple(map(chr, range(0xFDD0, 0xFDF0)))
"""Noncharacters, which Unicode keeps for uses inside a program."""


class ContentForm(StrEnum):
    """How a template takes the content of a message."""

    ANY = "any"
    """A text or a list of parts, as it was sent."""
    TEXT = "text"
    PARTS = "parts"


def checked_messages(messages: object, form: ContentForm) -> list[dict[str, Any]]:
    """Check the messages of a chat, and give copies whose contents have the template's form.

    Text parts are joined by line ends where the template takes text alone.

    Raises:
        RequestError: a message has not the shape of one.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise RequestError("messages must be a list of at least one message.")
    return [_checked(f"messages[{place}]", each, form) for place, each in enumerate(messages)]


def checked_data(where: str, value: object, depth: int = 0) -> Any:
    """Copy JSON data, whatever holds it.

    Raises:
        RequestError: something in it is no JSON, or it is too deep.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if depth == MAX_DEPTH:
        raise RequestError(f"{where} has more than {MAX_DEPTH} lists or objects inside each other.")
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise RequestError(f"{where} holds an object with keys that are not strings.")
        return {key: checked_data(where, each, depth + 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [checked_data(where, each, depth + 1) for each in value]
    raise RequestError(f"{where} holds a {type(value).__name__}; only JSON values are allowed.")


def strings_of(value: object) -> Iterator[str]:
    """Yield every string in JSON data, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield key
            yield from strings_of(each)
    elif isinstance(value, list):
        for each in value:
            yield from strings_of(each)


def unused_sentinel(strings: Sequence[str]) -> str:
    """Give a noncharacter that none of `strings` has, neither itself nor as a JSON escape.

    Raises:
        RequestError: all 32 of them are there.
    """
    for sentinel in SENTINELS:
        if not any(sentinel in text or escaped(sentinel) in text for text in strings):
            return sentinel
    raise RequestError("the chat holds all noncharacters U+FDD0 to U+FDEF; leave one of them out.")


def escaped(sentinel: str) -> str:
    """Give the JSON escape of `sentinel`."""
    return f"\\u{ord(sentinel):04x}"


def broken(value: Any, controls: ControlStrings, sentinel: str) -> Any:
    """Copy JSON data with `sentinel` inside all that could be, or become, a control string.

    Names that only say what a value is stay whole: templates look for them, and some spell control
    strings with a role ('<|' + role + '|>').
    """
    if isinstance(value, str):
        return controls.broken(value, sentinel)
    if isinstance(value, dict):
        copy = {}
        for key, each in value.items():
            is_kind = key in KINDS and isinstance(each, str) and NAME.fullmatch(each)
            whole = key if NAME.fullmatch(key) else controls.broken(key, sentinel)
            copy[whole] = each if is_kind else broken(each, controls, sentinel)
        return copy
    if isinstance(value, list):
        return [broken(each, controls, sentinel) for each in value]
    return value


def _checked(where: str, message: object, form: ContentForm) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(f"{where} must be an object with role and content.")
    role = message.get("role")
    if not isinstance(role, str) or NAME.fullmatch(role) is None:
        raise RequestError(
            f"{where}.role must be a name of 1 to 64 letters, digits, '_', '.' and '-'."
        )
    copy: dict[str, Any] = checked_data(where, message)
    copy["content"] = _checked_content(where, copy, form)
    return copy


def _checked_content(where: str, message: Mapping[str, Any], form: ContentForm) -> Any:
    content = message.get("content")
    if content is None and message.get("tool_calls"):
        return None
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if form is ContentForm.PARTS else content
    if not isinstance(content, list):
        raise RequestError(f"{where}.content must be a string or a list of text parts.")
    for place, part in enumerate(content):
        if not isinstance(part, dict) or part.get("type") != "text":
            raise RequestError(f"{where}.content[{place}] must be a part of type text.")
        if not isinstance(part.get("text"), str):
            raise RequestError(f"{where}.content[{place}].text must be a string.")
    if form is ContentForm.TEXT:
        return "\n".join(part["text"] for part in content)
    return content
