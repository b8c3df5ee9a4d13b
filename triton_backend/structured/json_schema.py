"""JSON schema, keyword by keyword: what is carried out, what only tells people something, and what is refused.

The compiler (llguidance) passes over keywords that it does not know, and over some that it does. So every keyword of
every subschema is looked up here, and only those that are carried out in full go on. A schema is read as draft
2020-12, whatever `$schema` says; lists of `items` and the bounds of draft 4 are told by their types.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import unquote

from builder.errors import RequestError, unknown_name

NAMED_SCHEMAS = frozenset({"$defs", "definitions", "patternProperties", "properties"})
"""They hold subschemas by names of the user's."""
SCHEMAS = frozenset(
    {
        *("additionalItems", "additionalProperties", "items"),
        *("allOf", "anyOf", "oneOf", "prefixItems"),
    }
)
"""They hold a subschema, or a list of them."""
VALUES = frozenset(
    {
        *("$anchor", "$ref", "const", "enum", "format", "pattern", "required", "type"),
        *("maxItems", "maxLength", "maxProperties", "minItems", "minLength", "minProperties"),
        *("exclusiveMaximum", "exclusiveMinimum", "maximum", "minimum", "multipleOf"),
    }
)
CARRIED_OUT = NAMED_SCHEMAS | SCHEMAS | VALUES
ANNOTATIONS = frozenset(
    {
        *("$comment", "$schema", "default", "deprecated", "description", "examples", "readOnly"),
        *("title", "writeOnly"),
        # OpenAPI's: its discriminator must not change what is valid.
        *("discriminator", "example", "externalDocs", "xml"),
        # They name the document for others; a $ref by that name is refused.
        *("$id", "id"),
    }
)
"""They change nothing of what is valid."""
ANYTHING: tuple[object, ...] = (True, {})
REFUSED: Mapping[str, tuple[object, ...]] = {
    "$dynamicAnchor": (),
    "$dynamicRef": (),
    "$recursiveAnchor": (False,),
    "$recursiveRef": (),
    "$vocabulary": (),
    "contains": (),
    "contentEncoding": (),
    "contentMediaType": (),
    "contentSchema": ANYTHING,
    "dependencies": ({},),
    "dependentRequired": ({},),
    "dependentSchemas": ({},),
    "disallow": (),
    "divisibleBy": (),
    "else": ANYTHING,
    "extends": (),
    "if": (),
    "maxContains": (),
    "minContains": (),
    "not": (False,),
    "nullable": (False,),
    "propertyNames": ANYTHING,
    "then": ANYTHING,
    "unevaluatedItems": ANYTHING,
    "unevaluatedProperties": ANYTHING,
    "uniqueItems": (False,),
    "x-guidance": (),
}
"""Known, not carried out; and the values beside which nothing would change."""
WORD = re.compile(r"[$A-Za-z][A-Za-z0-9$_-]{0,39}")
Place = tuple[str, ...]
"""The names and indices that lead to a value from the root."""


def carried_out(schema: object) -> object:
    """Give of a parsed schema what is carried out.

    Raises:
        RequestError: the schema asks for more than that; the message names keywords, and quotes no value.
    """
    reading = _Reading()
    read = reading.schema(schema, ())
    if reading.refused:
        names = ", ".join(sorted(reading.refused))
        raise RequestError(f"constraint.text uses of JSON schema what is not supported: {names}.")
    if not reading.references <= reading.places:
        raise RequestError("constraint.text refers by $ref to what is no schema in it.")
    return read


@dataclass(slots=True)
class _Reading:
    """What was met on the way through a schema."""

    places: set[Place] = field(default_factory=set)
    """Where schemas are."""
    references: set[Place] = field(default_factory=set)
    """Where schemas are expected."""
    refused: set[str] = field(default_factory=set)

    def schema(self, schema: object, place: Place) -> object:
        """Read one schema; the compiler refuses what is none."""
        self.places.add(place)
        if not isinstance(schema, dict):
            return schema
        self.refused |= without_effect(schema)
        if place and "$id" in schema:
            self.refused.add("$id below the root")
        return {
            name: self._value(name, value, (*place, name))
            for name, value in schema.items()
            if self._is_carried_out(name, value)
        }

    def _is_carried_out(self, name: str, value: object) -> bool:
        if name in CARRIED_OUT:
            return True
        if name in REFUSED and not any(_is_same(value, neutral) for neutral in REFUSED[name]):
            self.refused.add(name)
        if name not in ANNOTATIONS and name not in REFUSED:
            raise _unknown(name)
        return False

    def _value(self, name: str, value: object, place: Place) -> object:
        """Read the value of a keyword that is carried out."""
        if name in NAMED_SCHEMAS and isinstance(value, dict):
            return {key: self.schema(each, (*place, key)) for key, each in value.items()}
        if name in SCHEMAS and isinstance(value, list):
            return [self.schema(each, (*place, str(index))) for index, each in enumerate(value)]
        if name in SCHEMAS:
            return self.schema(value, place)
        if name == "$ref" and isinstance(value, str) and value[:2] in ("#", "#/"):
            self.references.add(_pointed(value))
        if not _is_exact(value):
            self.refused.add(f"integers that a double does not hold, in {name}")
        return value


def without_effect(schema: Mapping[str, object]) -> set[str]:
    """Name the keywords that would be carried out, but not beside the others of this schema."""
    has_list = isinstance(schema.get("items"), list)
    types = schema.get("type", "string")
    found = {
        f"{name} without a number in {bound}"
        for name, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
        if schema.get(name) is True and bound not in schema
    }
    if "format" in schema and "string" not in (types if isinstance(types, list) else [types]):
        found.add("format of what is no string")
    if "additionalItems" in schema and not has_list:
        found.add("additionalItems without a list of items")
    if "prefixItems" in schema and (has_list or "additionalItems" in schema):
        found.add("prefixItems beside a list of items")
    if any(map(is_cut, _patterns(schema))):
        found.add("a pattern that ends with half an escape")
    return found


def is_cut(pattern: str) -> bool:
    """Tell whether a regular expression ends with half an escape, which the compiler would leave out."""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 1


def _patterns(schema: Mapping[str, object]) -> list[str]:
    named = schema.get("patternProperties")
    found = [schema.get("pattern"), *(named if isinstance(named, dict) else ())]
    return [pattern for pattern in found if isinstance(pattern, str)]


def _unknown(name: str) -> RequestError:
    if not WORD.fullmatch(name):
        return RequestError(
            f"constraint.text has a keyword of {len(name)} characters that JSON schema does not know."
        )
    return RequestError(
        f"constraint.text has an {unknown_name('keyword of JSON schema', name, CARRIED_OUT)}"
    )


def _pointed(reference: str) -> Place:
    """Give the place that a JSON pointer leads to."""
    steps = unquote(reference[1:]).split("/")[1:]
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in steps)


def _is_exact(value: object) -> bool:
    """Tell whether every integer in a value is one to the compiler, which reads numbers as doubles."""
    if isinstance(value, list):
        return all(map(_is_exact, value))
    if isinstance(value, dict):
        return all(map(_is_exact, value.values()))
    try:
        return not isinstance(value, int) or float(value) == value
    except OverflowError:
        return False


def _is_same(value: object, neutral: object) -> bool:
    """Tell whether a value is a neutral one; to Python, 0 is false."""
    return type(value) is type(neutral) and value == neutral
