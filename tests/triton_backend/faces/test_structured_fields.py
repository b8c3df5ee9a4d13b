"""Constraints in vLLM's words: each kind is read, one at a time, and nothing of them is quoted."""

from typing import Any

import pytest

from builder.errors import RequestError
from triton_backend.constraint import MAX_CHARACTERS, Constraint, ConstraintKind
from triton_backend.faces.structured_fields import KINDS, read_constraint, schema_constraint

SCHEMA = {"type": "object", "properties": {"\u00e9": {"const": 1}}}
SCHEMA_TEXT = '{"type":"object","properties":{"\u00e9":{"const":1}}}'
JSON, CHOICE = ConstraintKind.JSON_SCHEMA, ConstraintKind.CHOICE


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"json": SCHEMA}, JSON, SCHEMA_TEXT),
        ({"json": SCHEMA_TEXT}, JSON, SCHEMA_TEXT),
        ({"json": {}}, JSON, "{}"),
        ({"json_object": True}, JSON, '{"type":"object"}'),
        ({"regex": "a+"}, ConstraintKind.REGEX, "a+"),
        ({"choice": ["a", "\u00e9"]}, CHOICE, '["a", "\u00e9"]'),
        ({"grammar": 'root ::= "a"'}, ConstraintKind.GRAMMAR, 'root ::= "a"'),
        ({"regex": "", "json": None, "disable_fallback": False}, ConstraintKind.REGEX, ""),
        ({"regex": "a", "json_object": False}, ConstraintKind.REGEX, "a"),
    ],
)
def test_each_kind_is_read(fields: dict[str, Any], kind: ConstraintKind, text: str) -> None:
    assert read_constraint("outputs", fields) == Constraint(kind, text)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "outputs must have one of json, regex, choice, grammar, json_object; got none."),
        ({"regex": "secret", "json": "secret"}, "json_object; got regex and json."),
        ({"json": ["secret"]}, "outputs.json must be a JSON schema: an object, or the text"),
        ({"json_object": "secret"}, "outputs.json_object must be true."),
        ({"regex": 5}, "outputs.regex must be a string."),
        ({"grammar": ["secret"]}, "outputs.grammar must be a string."),
        ({"choice": []}, "outputs.choice must be a list of strings."),
        ({"choice": ["secret", 1]}, "outputs.choice must be a list of strings."),
        ({"choice": "secret"}, "outputs.choice must be a list of strings."),
        ({"structural_tag": "secret"}, "outputs has no field 'structural_tag' here; allowed are"),
        ({"regex": "a", "disable_fallback": True}, "outputs has no field 'disable_fallback' here"),
        ({"regex": "x" * (MAX_CHARACTERS + 1)}, "constraint.text must have at most"),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_constraint("outputs", fields)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_every_kind_of_constraint_can_be_said() -> None:
    values: dict[str, Any] = {"json": {}, "regex": "a", "choice": ["a"], "grammar": "a"}
    values["json_object"] = True
    said = {KINDS[name](name, values[name]).kind for name in KINDS}
    assert said == set(ConstraintKind)


def test_a_schema_keeps_the_order_of_its_fields() -> None:
    """Answers follow it."""
    one, other = ({"properties": {key: {} for key in keys}} for keys in ("ab", "ba"))
    assert schema_constraint(one) != schema_constraint(other)
