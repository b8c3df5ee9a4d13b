"""Constraints as vLLM's API words them: an object with one of `json`, `regex`, `choice`, `grammar`, `json_object`."""

import json
from collections.abc import Callable, Mapping

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind

ANY_OBJECT = Constraint(ConstraintKind.JSON_SCHEMA, '{"type":"object"}')


def read_constraint(name: str, fields: Mapping[str, object]) -> Constraint:
    """Read the object that the field `name` holds; null is as good as absent.

    Raises:
        RequestError: it says none, or more than one, or what is not supported; the message quotes no value.
    """
    given = {key: value for key, value in fields.items() if value is not None}
    for key, value in list(given.items()):
        if key in OPTIONS and value is False:
            del given[key]
        elif key not in KINDS:
            # An option that is set, too: this engine writes JSON as it comes.
            raise RequestError(
                f"{name} has no field {key[:64]!r} here; allowed are {', '.join(KINDS)}."
            )
    if len(given) != 1:
        what = " and ".join(given) or "none"
        raise RequestError(f"{name} must have one of {', '.join(KINDS)}; got {what}.")
    ((key, value),) = given.items()
    return KINDS[key](f"{name}.{key}", value)


def _json(name: str, value: object) -> Constraint:
    if isinstance(value, str):
        return Constraint(ConstraintKind.JSON_SCHEMA, value)
    if not isinstance(value, dict):
        raise RequestError(f"{name} must be a JSON schema: an object, or the text of one.")
    return schema_constraint(value)


def schema_constraint(schema: Mapping[str, object]) -> Constraint:
    """Give the constraint of a JSON schema that was parsed.

    Raises:
        RequestError: it is too long.
    """
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return Constraint(ConstraintKind.JSON_SCHEMA, text)


def _regex(name: str, value: object) -> Constraint:
    return Constraint(ConstraintKind.REGEX, _text(name, value))


def _grammar(name: str, value: object) -> Constraint:
    return Constraint(ConstraintKind.GRAMMAR, _text(name, value))


def _choice(name: str, value: object) -> Constraint:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise RequestError(f"{name} must be a list of strings.")
    return Constraint(ConstraintKind.CHOICE, json.dumps(value, ensure_ascii=False))


def _json_object(name: str, value: object) -> Constraint:
    if value is not True:
        raise RequestError(f"{name} must be true.")
    return ANY_OBJECT


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{name} must be a string.")
    return value


KINDS: dict[str, Callable[[str, object], Constraint]] = {
    "json": _json,
    "regex": _regex,
    "choice": _choice,
    "grammar": _grammar,
    "json_object": _json_object,
}
OPTIONS = frozenset(
    {"json_object", "disable_fallback", "disable_any_whitespace", "disable_additional_properties"}
)
"""Switches that ask for nothing when they are false."""
