"""Trials are processes: hostile constraints are refused in bounded time, and good ones come back."""

import json
import time
from pathlib import Path

import pytest

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of
from triton_backend.structured.trial import MAX_CPU_S, MAX_WALL_S, tried

SCHEMA, REGEX = ConstraintKind.JSON_SCHEMA, ConstraintKind.REGEX


def many_multiples() -> str:
    """An intersection of unions: 81 products of four numbers each, 300 characters in all."""
    parts = [
        [{"type": "integer", "multipleOf": 101 + 6 * i + 2 * j} for j in range(3)] for i in range(4)
    ]
    return json.dumps({"allOf": [{"anyOf": part} for part in parts]})


def test_a_good_constraint_gives_its_grammar() -> None:
    constraint = Constraint(SCHEMA, '{"type": "string", "pattern": "^é+$"}')
    assert tried(constraint) == grammar_of(constraint)


@pytest.mark.parametrize("text", [many_multiples(), '{"type": "integer", "multipleOf": 999983}'])
def test_a_constraint_that_compiles_for_minutes_is_refused_in_time(text: str) -> None:
    start = time.monotonic()
    with pytest.raises(RequestError, match="takes too long to compile; make it smaller"):
        tried(Constraint(SCHEMA, text))
    assert time.monotonic() - start < MAX_WALL_S + 10 * MAX_CPU_S


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"uniqueItems": true, "type": "array"}', "what is not supported: uniqueItems"),
        ("[" * 60_000, "is nested too deep"),
        ("[1]", "is neither an object nor true or false"),
    ],
)
def test_a_refusal_of_the_trial_is_a_refusal_here(text: str, told: str) -> None:
    with pytest.raises(RequestError, match=told):
        tried(Constraint(SCHEMA, text))


def test_a_union_too_large_for_its_limits_is_refused() -> None:
    parts = [
        {"anyOf": [{"properties": {f"p{i}{j}": {"type": "string"}}} for j in range(4)]}
        for i in range(5)
    ]
    with pytest.raises(RequestError, match="too l"):
        tried(Constraint(SCHEMA, json.dumps({"type": "object", "allOf": parts})))


def test_modules_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llguidance.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert tried(Constraint(REGEX, "[ab]+"))
