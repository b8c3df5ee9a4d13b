"""What is refused before anything is compiled, and in which words."""

import pytest
from llguidance import LLMatcher

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of, refusal

SCHEMA, REGEX, CHOICE, GRAMMAR = ConstraintKind


def problem_of(kind: ConstraintKind, text: str) -> str:
    """What the compiler says of a constraint."""
    return LLMatcher.validate_grammar(grammar_of(Constraint(kind, text)))


@pytest.mark.parametrize(
    ("kind", "text", "told"),
    [
        (SCHEMA, "secret", "is not a JSON schema: it is no JSON"),
        (SCHEMA, '["secret"]', "is not a JSON schema: it is neither an object nor true or false"),
        (SCHEMA, '{"x-guidance": {"lenient": true}}', "x-guidance, which is not supported"),
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
        (SCHEMA, '{"not": {"const": "secret"}}', "uses not of JSON schema, which is not supported"),
        (SCHEMA, '{"type": "array", "uniqueItems": true}', "uses uniqueItems"),
        (SCHEMA, '{"if": {}, "then": {}, "else": {}}', "uses else, if, then"),
        (SCHEMA, '{"type": "string", "format": "secret"}', '"format"'),
        (SCHEMA, '{"$ref": "http://secret"}', "refers to another document"),
        (SCHEMA, '{"type": "secret"}', "is not a JSON schema"),
        (SCHEMA, "false", "can't be satisfied"),
        (SCHEMA, '{"type": "string", "pattern": "(?=secret)"}', "look-around"),
        (REGEX, "(secret", "is not a regular expression"),
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


def test_escapes_of_a_grammar_are_the_characters_they_name() -> None:
    text = r'root ::= "\u0041\u00e9\U0001f600\u0022\\u0041"'
    grammar = grammar_of(Constraint(GRAMMAR, text))
    assert r'"\x41é😀\x22\\u0041"' in grammar
