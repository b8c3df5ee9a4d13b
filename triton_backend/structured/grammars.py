"""Constraints translated into the grammar language of llguidance, checked as far as text can be checked.

It compiles nothing. Messages name keywords of the published languages, and quote nothing of the text.
"""

import json
import re

from llguidance import LLMatcher
from llguidance.gbnf_to_lark import gbnf_to_lark

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.json_schema import CARRIED_OUT, carried_out, is_cut

_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|.)", re.DOTALL)
_WRONG_VALUE = re.compile(r"^Expected [a-z0-9 ]+ for '([A-Za-z]+)'|^([A-Za-z]+) must be an? ")


def grammar_of(constraint: Constraint) -> str:
    """Translate a constraint.

    Raises:
        RequestError: it is not of its language.
    """
    translate = {
        ConstraintKind.JSON_SCHEMA: _of_json_schema,
        ConstraintKind.REGEX: _of_regex,
        ConstraintKind.CHOICE: _of_choice,
        ConstraintKind.GRAMMAR: _of_ebnf,
    }[constraint.kind]
    return translate(constraint.text)


def invalid(kind: ConstraintKind, why: str) -> RequestError:
    """Make the refusal of a constraint that is not of its language."""
    return RequestError(f"constraint.text is not {_LANGUAGES[kind]}: {why}.")


def unusable(kind: ConstraintKind) -> RequestError:
    """Make the refusal of a constraint of which nobody knows whether it is of its language."""
    return RequestError(
        f"constraint.text is not {_LANGUAGES[kind]}, or uses what is not supported of that language."
    )


def refusal(kind: ConstraintKind, problem: str) -> RequestError:
    """Turn what the compiler of llguidance says against a constraint into a refusal that quotes nothing."""
    if wrong := _WRONG_VALUE.search(problem):
        name = wrong[1] or wrong[2]
        if name in CARRIED_OUT:
            return invalid(kind, f"{name} has a value that it can't have")
    for sign, what in _KNOWN_PROBLEMS:
        if sign in problem:
            return RequestError(f"constraint.text {what}.")
    return unusable(kind)


_LANGUAGES = {
    ConstraintKind.JSON_SCHEMA: "a JSON schema",
    ConstraintKind.REGEX: "a regular expression",
    ConstraintKind.CHOICE: "a JSON array of strings",
    ConstraintKind.GRAMMAR: "a grammar in EBNF with a rule root",
}
_KNOWN_PROBLEMS = (
    ("Unknown format", 'asks for a "format" of JSON schema that is not supported'),
    ("Invalid type", 'has a "type" that JSON schema does not know'),
    ("retrieving it failed", "refers to another document by $ref; only #/... is supported"),
    ("Anchor '", "refers by $ref to what is no schema in it"),
    ("circular references", "refers by $ref in a circle beside other keywords; move those away"),
    (
        "oneOf constraints",
        "has a oneOf of which more than one may hold, which is not supported; use anyOf, or a required const in each",
    ),
    (
        "min/maxProperties",
        "uses minProperties or maxProperties beside properties that are not required, which is not supported",
    ),
    (
        "patternProperty",
        "uses patternProperties with patterns that overlap, which is not supported",
    ),
    ("look-around", "uses look-around in a regular expression, which is not supported"),
    (
        "lookarounds",
        r"uses \b, \B, or ^ or $ in the middle of a regular expression, which is not supported",
    ),
    ("backreferences", "uses a backreference in a regular expression, which is not supported"),
    ("Unsatisfiable", "can't be satisfied by any answer"),
    ("NoExtensionBias", "can't be satisfied by any answer"),
    ("ecursion", "is nested too deep"),
    ("fuel", "is too large to compile"),
    ("too large", "is too large to compile"),
    ("too big", "is too large to compile"),
    ("too many", "is too large to compile"),
    ("Unable to determine if regex is empty", "is too large to compile"),
    ("symbols.len()", "is too large to compile"),
)


def _of_json_schema(text: str) -> str:
    kind = ConstraintKind.JSON_SCHEMA
    try:
        schema = json.loads(text, parse_constant=_no_number)
    except ValueError:
        raise invalid(kind, "it is no JSON") from None
    if not isinstance(schema, dict | bool):
        raise invalid(kind, "it is neither an object nor true or false")
    try:
        # What was looked at is what is compiled, and not the text.
        return LLMatcher.grammar_from_json_schema(json.dumps(carried_out(schema), allow_nan=False))
    except ValueError:
        raise invalid(kind, "it has a number beyond all bounds") from None


def _no_number(_: str) -> object:
    raise ValueError("NaN and Infinity are no JSON")


def _of_regex(text: str) -> str:
    if is_cut(text):
        raise invalid(ConstraintKind.REGEX, "it ends with half an escape")
    return LLMatcher.grammar_from_regex(text)


def _of_choice(text: str) -> str:
    try:
        choices = json.loads(text)
        is_list = isinstance(choices, list) and all(isinstance(each, str) for each in choices)
        json.dumps(choices, ensure_ascii=False).encode()
    except ValueError:  # no JSON, or half of a surrogate pair
        is_list = False
    if not is_list or not choices:
        raise invalid(ConstraintKind.CHOICE, "it must hold one string at least, and nothing else")
    # Escaped down to ASCII: control characters are no part of a string in Lark, and json leaves one as it is.
    return LLMatcher.grammar_from_lark("start: " + " | ".join(map(json.dumps, choices)))


def _of_ebnf(text: str) -> str:
    try:
        return LLMatcher.grammar_from_lark(gbnf_to_lark(_ESCAPE.sub(_unescaped, text)))
    except Exception:  # noqa: BLE001 - the translator raises plain ones, which quote the text
        raise unusable(ConstraintKind.GRAMMAR) from None


def _unescaped(found: re.Match[str]) -> str:
    r"""Give the character of a \u or \U escape, which the translator would lose the zeros of, or of \-."""
    digits = found[1] or found[2]
    if digits is None:
        return r"\x2d" if found[0] == r"\-" else found[0]
    code = int(digits, 16)
    return f"\\x{code:02x}" if code < 0x80 else chr(code)
