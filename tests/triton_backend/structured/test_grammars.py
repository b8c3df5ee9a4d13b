"""What is refused before anything is compiled, and in which words."""

import json

import pytest

from builder.errors import RequestError
from tests.triton_backend.structured.matching import accepts, problem_in
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of, refusal

SCHEMA, REGEX, CHOICE, GRAMMAR = ConstraintKind
CIRCLE = json.dumps(
    {
        "$ref": "#/$defs/b",
        "$defs": {
            "b": {"$ref": "#/$defs/secret", "minLength": 3},
            "secret": {"$ref": "#/$defs/b", "minLength": 3},
        },
    }
)


def problem_of(kind: ConstraintKind, text: str) -> str:
    """What the compiler says of a constraint."""
    return problem_in(grammar_of(Constraint(kind, text)))


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (SCHEMA, "secret", "is not a JSON schema: it is no JSON"),
        (SCHEMA, '["secret"]', "is not a JSON schema: it is neither an object nor true or false"),
        (SCHEMA, '{"maximum": NaN}', "is not a JSON schema: it is no JSON"),
        (SCHEMA, '{"maximum": 1e999}', "is not a JSON schema: it has a number beyond all bounds"),
        (REGEX, "secret\\", "is not a regular expression: it ends with half an escape"),
        (CHOICE, "secret", "is not a JSON array of strings"),
        (CHOICE, '"secret"', "is not a JSON array of strings"),
        (CHOICE, '["secret", 1]', "is not a JSON array of strings"),
        (CHOICE, "[]", "is not a JSON array of strings"),
        (CHOICE, '["\\ud800"]', "is not a JSON array of strings"),
        (GRAMMAR, 'secret ::= "a"', "is not a grammar in EBNF with a rule root"),
        (GRAMMAR, "root ::= secret", "is not a grammar in EBNF with a rule root"),
        (GRAMMAR, 'root ::= "secret', "is not a grammar in EBNF with a rule root"),
    ],
)
def test_what_is_not_of_its_language_is_refused_unquoted(
    kind: ConstraintKind, text: str, told: str
) -> None:
    with pytest.raises(RequestError) as refused:
        grammar_of(Constraint(kind, text))
    assert told in str(refused.value)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (SCHEMA, '{"type": "string", "format": "secret"}', '"format"'),
        (SCHEMA, '{"$ref": "http://secret"}', "refers to another document"),
        (SCHEMA, '{"$ref": "#secret"}', "refers by $ref to what is no schema"),
        (SCHEMA, '{"type": "secret"}', 'has a "type" that JSON schema does not know'),
        (SCHEMA, '{"minLength": "secret"}', "is not a JSON schema: minLength has a value"),
        (SCHEMA, '{"enum": "secret"}', "is not a JSON schema: enum has a value"),
        (SCHEMA, '{"items": "secret"}', "is not a JSON schema, or uses what is not supported"),
        (SCHEMA, '{"$ref": "#"}', "can't be satisfied"),
        (
            SCHEMA,
            '{"oneOf": [{"type": "integer"}, {"type": "number"}]}',
            "has a oneOf of which more",
        ),
        (SCHEMA, '{"properties": {"secret": {}}, "minProperties": 1}', "uses minProperties or max"),
        (
            SCHEMA,
            '{"patternProperties": {"^s": {}, "^secret": {}}}',
            "patternProperties with patterns that overlap",
        ),
        (
            SCHEMA,
            CIRCLE,
            "refers by $ref in a circle",
        ),
        (SCHEMA, "false", "can't be satisfied"),
        (SCHEMA, '{"type": "string", "pattern": "(?=secret)"}', "look-around"),
        (REGEX, "(secret", "is not a regular expression, or uses what is not supported of that"),
        (REGEX, r"\bsecret\b", r"uses \b, \B, or ^ or $ in the middle of a regular expression"),
        (REGEX, "secret$b", r"uses \b, \B, or ^ or $ in the middle of a regular expression"),
        (GRAMMAR, "root ::= root", "can't be satisfied"),
        (REGEX, "(secret)\\1", "backreference"),
    ],
)
def test_what_the_compiler_refuses_is_told_by_name_and_unquoted(
    kind: ConstraintKind, text: str, told: str
) -> None:
    problem = problem_of(kind, text)
    assert problem
    message = str(refusal(kind, problem))
    assert told in message
    assert "secret" not in message


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (SCHEMA, "{}"),
        (SCHEMA, "true"),
        (SCHEMA, '{"title": "any", "description": "annotations mean nothing"}'),
        (REGEX, ""),
        (CHOICE, '["a", "\\u00e9\\ud83d\\ude00", "\\"/\\\\\\n"]'),
        (GRAMMAR, 'root ::= "\\u0041\\u00e9\\U0001f600\\u0022" [\\u00e0-\\u00ff] "\\\\u"'),
        (GRAMMAR, "root ::= root [a-z] | [a-z]"),
    ],
)
def test_what_is_of_its_language_compiles(kind: ConstraintKind, text: str) -> None:
    assert problem_of(kind, text) == ""


def test_a_choice_may_be_any_text() -> None:
    above = (0x2028, 0x2029, 0xD7FF, 0xE000, 0xFEFF, 0xFFFD, 0xFFFF, 0x1F600, 0x10FFFF)
    choices = [chr(code) for code in (*range(0x180), *above)]
    further = ["", " a ", "a\r\nb", '"i', "/a/", "a|b", "%json {}", "<|im_end|>", "\\u0041"]
    grammar = grammar_of(Constraint(CHOICE, json.dumps(choices + further)))
    assert [each for each in choices + further if not accepts(grammar, each)] == []
    assert not accepts(grammar, "ab")
    assert not accepts(grammar, "\x7f\x7f")


def test_a_dash_may_be_escaped_in_a_grammar() -> None:
    grammar = grammar_of(Constraint(GRAMMAR, r'root ::= [a\-c] "\-"'))
    assert accepts(grammar, "--")
    assert not accepts(grammar, "b-")


def test_escapes_of_a_grammar_are_the_characters_they_name() -> None:
    text = r'root ::= "\u0041\u00e9\U0001f600\u0022\\u0041"'
    grammar = grammar_of(Constraint(GRAMMAR, text))
    assert r'"\x41é😀\x22\\u0041"' in grammar
