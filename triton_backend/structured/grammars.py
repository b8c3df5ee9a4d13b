"""Constraints translated into the grammar language of llguidance, checked as far as text can be checked.

It compiles nothing. Messages name keywords of the published languages, and quote nothing of the text.
"""

import json
import re

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)
_UNIMPLEMENTED = re.compile(r"Unimplemented keys: \[(.*?)\]")
_KEYWORD = re.compile(r'"(\$?[A-Za-z]{1,30})"')


def grammar_of(constraint: Constraint) -> str:
    """Translate a constraint.

    Raises:
        RequestError: it is not of its language.
    """
    translate = {
        ConstraintKind.JSON_SCHEMA: _of_json_schema,
        ConstraintKind.REGEX: LLMatcher.grammar_from_regex,
        ConstraintKind.CHOICE: _of_choice,
        ConstraintKind.GRAMMAR: _of_ebnf,
    }[constraint.kind]
    return translate(constraint.text)


def invalid(kind: ConstraintKind, why: str = "") -> RequestError:
    """Make the refusal of a constraint that is not of its language."""
    what = {
        ConstraintKind.JSON_SCHEMA: "a JSON schema",
        ConstraintKind.REGEX: "a regular expression",
        ConstraintKind.CHOICE: "a JSON array of strings",
        ConstraintKind.GRAMMAR: "a grammar in EBNF with a rule root",
    }[kind]
    return RequestError(f"constraint.text is not {what}{why and f': {why}'}.")


def refusal(kind: ConstraintKind, problem: str) -> RequestError:
    """Turn what the compiler of llguidance says against a constraint into a refusal that quotes nothing."""
    if missing := _UNIMPLEMENTED.search(problem):
        names = ", ".join(_KEYWORD.findall(missing[1])) or "a keyword"
        return RequestError(f"constraint.text uses {names} of JSON schema, which is not supported.")
    for sign, what in _KNOWN_PROBLEMS:
        if sign in problem:
            return RequestError(f"constraint.text {what}.")
    return invalid(kind)


_KNOWN_PROBLEMS = (
    ("Unknown format", 'asks for a "format" of JSON schema that is not supported'),
    ("retrieving it failed", "refers to another document by $ref; only #/... is supported"),
    ("look-around", "uses look-around in a regular expression, which is not supported"),
    ("backreferences", "uses a backreference in a regular expression, which is not supported"),
    ("Unsatisfiable", "can't be satisfied by any answer"),
    ("ecursion", "is nested too deep"),
    ("fuel", "is too large to compile"),
    ("too large", "is too large to compile"),
    ("too big", "is too large to compile"),
    ("too many", "is too large to compile"),
    ("Unable to determine if regex is empty", "is too large to compile"),
    ("symbols.len()", "is too large to compile"),
)


def _of_json_schema(text: str) -> str:
    try:
        schema = json.loads(text)
    except ValueError:
        raise invalid(ConstraintKind.JSON_SCHEMA, "it is no JSON") from None
    if not isinstance(schema, dict | bool):
        raise invalid(ConstraintKind.JSON_SCHEMA, "it is neither an object nor true or false")
    if isinstance(schema, dict) and "x-guidance" in schema:
        # It would let a request switch the refusal of unsupported keywords off.
        raise RequestError("constraint.text has x-guidance, which is not supported; leave it out.")
    return LLMatcher.grammar_from_json_schema(text)


def _of_choice(text: str) -> str:
    try:
        choices = json.loads(text)
        is_list = isinstance(choices, list) and all(isinstance(each, str) for each in choices)
        json.dumps(choices, ensure_ascii=False).encode()
    except ValueError:  # no JSON, or half of a surrogate pair
        is_list = False
    if not is_list or not choices:
        raise invalid(ConstraintKind.CHOICE)
    quoted = (json.dumps(choice, ensure_ascii=False) for choice in choices)
    return LLMatcher.grammar_from_lark("start: " + " | ".join(quoted))


def _of_ebnf(text: str) -> str:
    try:
        return LLMatcher.grammar_from_lark(gbnf_to_lark(_ESCAPE.sub(_unescaped, text)))
    except Exception:  # noqa: BLE001 - the translator raises plain ones, which quote the text
        raise invalid(ConstraintKind.GRAMMAR) from None


def _unescaped(found: re.Match[str]) -> str:
    r"""Give the character of a \u or \U escape, which the translator would lose the zeros of."""
    digits = found[1] or found[2]
    if digits is None:
        return found[0]
    code = int(digits, 16)
    return f"\\x{code:02x}" if code < 0x80 else chr(code)
