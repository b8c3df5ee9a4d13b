"""Every keyword is in one row of the table, and the table says what the compiler really does."""

import json
from typing import Any

import pytest

from builder.errors import RequestError
from tests.triton_backend.structured.matching import accepts
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of
from triton_backend.structured.json_schema import (
    ANNOTATIONS,
    CARRIED_OUT,
    REFUSED,
    WORD,
    carried_out,
)

Schema = dict[str, Any]
INTEGER = {"type": "integer"}


def compiled(schema: object) -> str:
    return grammar_of(Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema)))


EXAMPLES: list[tuple[str, Schema, str, str]] = [
    ("$anchor", {"$ref": "#a", "$defs": {"x": {"$anchor": "a", "const": 1}}}, "1", "2"),
    ("$defs", {"$ref": "#/$defs/x", "$defs": {"x": INTEGER}}, "1", '"a"'),
    (
        "$ref",
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": INTEGER}},
        "{}",
        '{"a":"b"}',
    ),
    ("additionalItems", {"items": [INTEGER], "additionalItems": False}, "[1]", "[1,2]"),
    ("additionalProperties", {"additionalProperties": INTEGER}, '{"a":1}', '{"a":"b"}'),
    ("allOf", {"allOf": [INTEGER, {"minimum": 4}]}, "4", "3"),
    ("anyOf", {"anyOf": [INTEGER, {"type": "null"}]}, "null", "true"),
    ("const", {"const": [1, {"a": "b"}]}, '[1,{"a":"b"}]', "[1]"),
    ("definitions", {"$ref": "#/definitions/x", "definitions": {"x": INTEGER}}, "1", '"a"'),
    ("enum", {"enum": ["a", 1, None]}, "null", "2"),
    ("exclusiveMaximum", {**INTEGER, "exclusiveMaximum": 3}, "2", "3"),
    ("exclusiveMaximum", {**INTEGER, "maximum": 3, "exclusiveMaximum": True}, "2", "3"),
    ("exclusiveMinimum", {**INTEGER, "exclusiveMinimum": 3}, "4", "3"),
    ("exclusiveMinimum", {**INTEGER, "minimum": 3, "exclusiveMinimum": True}, "4", "3"),
    ("format", {"type": ["string", "null"], "format": "date"}, '"2024-01-31"', '"2024-13-31"'),
    ("format", {"format": "uuid"}, "1", '"a"'),
    ("items", {"items": INTEGER}, "[1]", '["a"]'),
    ("items", {"items": [INTEGER]}, "[1]", '["a"]'),
    ("maxItems", {"maxItems": 1}, "[1]", "[1,2]"),
    ("maxLength", {"maxLength": 1}, '"\U0001f600"', '"ab"'),
    ("maxProperties", {"maxProperties": 1}, '{"a":1}', '{"a":1,"b":1}'),
    ("maximum", {"maximum": 3}, "3", "4"),
    ("minItems", {"minItems": 2}, "[1,2]", "[1]"),
    ("minLength", {"minLength": 2}, '"ab"', '"a"'),
    ("minProperties", {"minProperties": 1}, '{"a":1}', "{}"),
    ("minimum", {"minimum": 3}, "3", "2"),
    ("multipleOf", {**INTEGER, "multipleOf": 3}, "6", "7"),
    ("oneOf", {"oneOf": [INTEGER, {"type": "null"}]}, "null", "true"),
    ("pattern", {"pattern": "^a+$"}, '"aa"', '"ab"'),
    ("patternProperties", {"patternProperties": {"^x": INTEGER}}, '{"x":1}', '{"x":"a"}'),
    ("prefixItems", {"prefixItems": [INTEGER], "items": False}, "[1]", "[1,2]"),
    ("properties", {"properties": {"a": INTEGER}}, '{"a":1}', '{"a":"b"}'),
    ("required", {"type": "object", "required": ["a"]}, '{"a":1}', "{}"),
    ("type", {"type": "null"}, "null", "1"),
]
OLD = "http://json-schema.org/draft-04/schema#"


@pytest.mark.parametrize(("keyword", "schema", "valid", "other"), EXAMPLES)
def test_what_is_carried_out_is_carried_out_by_the_compiler(
    keyword: str, schema: Schema, valid: str, other: str
) -> None:
    assert keyword in CARRIED_OUT
    # To the compiler, most of these are no keywords of the draft that $schema names.
    for each in (schema, {"$schema": OLD, **schema}):
        assert accepts(compiled(each), valid)
        assert not accepts(compiled(each), other)


def test_every_keyword_that_is_carried_out_has_an_example() -> None:
    assert {keyword for keyword, *_ in EXAMPLES} == CARRIED_OUT


def test_every_keyword_is_in_one_row_and_is_a_word() -> None:
    rows = [*CARRIED_OUT, *ANNOTATIONS, *REFUSED]
    assert len(set(rows)) == len(rows)
    assert all(map(WORD.fullmatch, rows))


@pytest.mark.parametrize("keyword", sorted(ANNOTATIONS))
def test_an_annotation_changes_nothing_and_is_not_read(keyword: str) -> None:
    schema = {
        keyword: {"minLenght": 3},
        "allOf": [{"type": "integer", keyword.replace("$id", "id"): 1}],
    }
    assert carried_out(schema) == {"allOf": [INTEGER]}


@pytest.mark.parametrize("keyword", sorted(REFUSED))
def test_what_is_not_carried_out_is_refused_by_name_wherever_it_is(keyword: str) -> None:
    for value in ("secret", 1, [], 0):
        bad = {keyword: value}
        for schema in (
            bad,
            {"properties": {"secret": bad}},
            {"items": [bad]},
            {"anyOf": [True, bad]},
            {"additionalProperties": {"$defs": {"secret": bad}}},
        ):
            with pytest.raises(RequestError) as refused:
                carried_out(schema)
            assert str(refused.value).endswith(f"what is not supported: {keyword}.")
            assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("keyword", "value"),
    [(keyword, value) for keyword, values in REFUSED.items() for value in values],
)
def test_a_value_that_asks_for_nothing_is_let_through(keyword: str, value: object) -> None:
    assert carried_out({**INTEGER, keyword: value}) == INTEGER


def test_all_that_is_not_supported_is_named_at_once() -> None:
    with pytest.raises(RequestError, match="not supported: else, if, uniqueItems"):
        carried_out({"if": {}, "items": {"uniqueItems": True, "else": False}})


def test_an_unknown_keyword_is_named_with_what_was_meant() -> None:
    with pytest.raises(
        RequestError, match=r"unknown keyword .* 'minLenght'. Did you mean minLength"
    ):
        carried_out({"properties": {"a": {"type": "string", "minLenght": 3}}})


@pytest.mark.parametrize("keyword", ["not a word", "x" * 41, "", "\x1b[0m"])
def test_what_is_no_word_is_not_repeated(keyword: str) -> None:
    with pytest.raises(RequestError) as refused:
        carried_out({keyword: 1})
    assert f"a keyword of {len(keyword)} characters" in str(refused.value)


def test_names_of_the_user_are_no_keywords() -> None:
    schema = {"properties": {"not": INTEGER, "minLenght": INTEGER}, "$defs": {"if": INTEGER}}
    assert carried_out(schema) == schema
    data = {"enum": [{"not": 1}], "const": {"minLenght": [1]}}
    assert carried_out(data) == data


@pytest.mark.parametrize(
    ("schema", "name"),
    [
        ({"type": "integer", "format": "int32"}, "format of what is no string"),
        ({"type": ["integer", "null"], "format": "int32"}, "format of what is no string"),
        ({"exclusiveMinimum": True}, "exclusiveMinimum without a number in minimum"),
        ({"exclusiveMaximum": True, "minimum": 1}, "exclusiveMaximum without a number in maximum"),
        ({"items": {}, "additionalItems": False}, "additionalItems without a list of items"),
        ({"prefixItems": [{}], "items": [{}]}, "prefixItems beside a list of items"),
        ({"properties": {"a": {"$id": "b"}}}, "$id below the root"),
        ({"pattern": "a\\"}, "a pattern that ends with half an escape"),
        ({"patternProperties": {"a\\\\\\": {}}}, "a pattern that ends with half an escape"),
        ({"enum": [2**53 + 1]}, "integers that a double does not hold, in enum"),
        ({"const": {"a": [10**400]}}, "integers that a double does not hold, in const"),
        ({"minimum": -(2**53) - 1}, "integers that a double does not hold, in minimum"),
    ],
)
def test_what_would_have_no_effect_where_it_stands_is_refused(schema: Schema, name: str) -> None:
    with pytest.raises(RequestError) as refused:
        carried_out({"allOf": [schema]})
    assert name in str(refused.value)


@pytest.mark.parametrize("number", [0, -(2**53), 10**20, 0.1, True])
def test_a_number_that_a_double_holds_is_read(number: float) -> None:
    assert carried_out({"const": number}) == {"const": number}


@pytest.mark.parametrize(
    "reference", ["#/properties", "#/const", "#/allOf", "#/nowhere", "#/properties/a/title"]
)
def test_a_reference_leads_to_a_schema_that_was_read(reference: str) -> None:
    schema = {
        "allOf": [{"$ref": reference}],
        "const": {"minLenght": 3},
        "properties": {"a": {"title": "b"}},
    }
    with pytest.raises(RequestError, match="refers by \\$ref to what is no schema in it"):
        carried_out(schema)


@pytest.mark.parametrize("reference", ["#", "#/$defs/a~1b%25", "#/%24defs/a~1b%25", "#/items/0"])
def test_a_pointer_to_a_schema_is_followed(reference: str) -> None:
    schema = {
        "$defs": {"a/b%": INTEGER},
        "items": [INTEGER],
        "not": False,
        "anyOf": [{"$ref": reference}],
    }
    assert carried_out(schema) == {name: value for name, value in schema.items() if name != "not"}


@pytest.mark.parametrize(
    "schema", [True, False, {"items": 3}, {"properties": [1]}, {"prefixItems": "a"}]
)
def test_what_is_no_schema_is_left_to_the_compiler(schema: object) -> None:
    assert carried_out(schema) == schema
