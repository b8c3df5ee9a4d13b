"""OpenAI's `response_format`: what an answer must be, as the engine's constraint."""

from typing import Any

import msgspec

from triton_backend.constraint import Constraint
from triton_backend.faces.structured_fields import ANY_OBJECT, schema_constraint


class Text(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """Anything."""


class JsonObject(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_object"
):
    """Some JSON object."""


class NamedSchema(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON schema and what its author says of it. Answers follow it strictly in any case."""

    name: str
    schema: dict[str, Any]
    description: str | None = None
    strict: bool | None = None


class JsonSchema(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="json_schema"
):
    """JSON that conforms to a schema."""

    json_schema: NamedSchema


ResponseFormat = Text | JsonObject | JsonSchema
FORMATS = ("text", "json_object", "json_schema")
"""The values of `type`."""


def constraint_of(wanted: ResponseFormat | None) -> Constraint | None:
    """Give the constraint, if there is any.

    Raises:
        RequestError: the schema is too long.
    """
    match wanted:
        case JsonObject():
            return ANY_OBJECT
        case JsonSchema(named):
            return schema_constraint(named.schema)
    return None
