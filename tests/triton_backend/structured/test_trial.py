"""Trials are processes: hostile constraints are refused in bounded time, and good ones come back."""

import json
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest
from llguidance import LLMatcher, LLTokenizer

from builder.errors import EngineError, RequestError, UnavailableError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of
from triton_backend.structured.trial import (
    MAX_CPU_S,
    MAX_WALL_S,
    TOO_COMPLEX,
    ByteVocabulary,
    limits,
    tried,
)

SCHEMA, REGEX = ConstraintKind.JSON_SCHEMA, ConstraintKind.REGEX


def many_multiples() -> str:
    """An intersection of unions: 81 products of four numbers each, 300 characters in all."""
    parts = [
        [{"type": "integer", "multipleOf": 101 + 6 * i + 2 * j} for j in range(3)] for i in range(4)
    ]
    return json.dumps({"allOf": [{"anyOf": part} for part in parts]})


def refused(constraint: Constraint) -> str:
    """The refusal of a constraint, on a machine that may be too busy to tell at once."""
    for _ in range(6):
        try:
            tried(constraint)
        except UnavailableError:
            continue
        except RequestError as error:
            return str(error)
    raise AssertionError


def test_a_good_constraint_gives_its_grammar() -> None:
    constraint = Constraint(SCHEMA, '{"type": "string", "pattern": "^é+$"}')
    assert tried(constraint) == grammar_of(constraint)


@pytest.mark.parametrize("text", [many_multiples(), '{"type": "integer", "multipleOf": 999983}'])
def test_a_constraint_that_compiles_for_minutes_is_refused_in_time(text: str) -> None:
    start = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    told = refused(Constraint(SCHEMA, text))
    assert told == "constraint.text takes too long to compile; make it smaller."
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - start < 6 * 10 * MAX_CPU_S


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"uniqueItems": true, "type": "array"}', "what is not supported: uniqueItems"),
        ("[" * 60_000, "is nested too deep"),
        ("[1]", "is neither an object nor true or false"),
    ],
)
def test_a_refusal_of_the_trial_is_a_refusal_here(text: str, told: str) -> None:
    assert told in refused(Constraint(SCHEMA, text))


def ended(monkeypatch: pytest.MonkeyPatch, code: int | Exception) -> None:
    """Let the process of a trial end in a way of its own."""

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[bytes]:
        if isinstance(code, Exception):
            raise code
        return subprocess.CompletedProcess(command, code, b"", b"")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (subprocess.TimeoutExpired("trial", MAX_WALL_S), UnavailableError),
        (OSError("no process can be started"), UnavailableError),
        (-signal.SIGKILL, UnavailableError),
        (-signal.SIGPROF, RequestError),
        (-signal.SIGABRT, RequestError),
        (1, EngineError),
    ],
)
def test_only_what_a_constraint_itself_costs_is_its_refusal(
    monkeypatch: pytest.MonkeyPatch, code: int | Exception, error: type[Exception]
) -> None:
    ended(monkeypatch, code)
    with pytest.raises(error) as caught:
        tried(Constraint(REGEX, "a"))
    assert type(caught.value) is error


def test_a_refusal_keeps_nothing_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    ended(monkeypatch, -signal.SIGPROF)
    raised = []
    for _ in range(2):
        with pytest.raises(RequestError) as caught:
            tried(Constraint(REGEX, "a"))
        raised.append(caught.value)
    assert raised[0] is not raised[1]


def walked(constraint: Constraint, text: bytes) -> list[float]:
    """Follow a text byte by byte, as far as the limits allow; give the seconds that each byte took."""
    matcher = LLMatcher(
        LLTokenizer(ByteVocabulary(), n_vocab=257),  # type: ignore[arg-type]
        grammar_of(constraint),
        log_level=0,
        limits=limits(),
    )
    costs: list[float] = []
    for byte in text:
        start = time.thread_time()
        matcher.compute_bitmask()
        matcher.consume_token(byte)
        costs.append(time.thread_time() - start)
        if matcher.is_error():
            break
    return costs


def test_an_ambiguous_grammar_ends_its_answer_before_it_costs_much() -> None:
    grammar = Constraint(ConstraintKind.GRAMMAR, "root ::= s\ns ::= s s | [a-z] | s s s")
    costs = walked(grammar, b"a" * 1000)
    assert len(costs) == 150  # the 200th costs four times as much as this one
    assert max(costs) < 0.2


@pytest.mark.parametrize(
    ("grammar", "length"),
    [
        ("root ::= [a-z]+", 1000),
        ("root ::= root [a-z] | [a-z]", 1000),
        ("root ::= [a-z] root | [a-z]", 747),
    ],
)
def test_only_a_rule_that_ends_with_itself_ends_its_answer(grammar: str, length: int) -> None:
    assert len(walked(Constraint(ConstraintKind.GRAMMAR, grammar), b"a" * 1000)) == length


def test_a_schema_with_many_optional_fields_is_followed_to_its_end() -> None:
    fields = {f"k{number}": {"type": "integer"} for number in range(150)}
    schema = Constraint(SCHEMA, json.dumps({"type": "object", "properties": fields}))
    text = b'{"k0": 1, "k149": 2}'
    assert len(walked(schema, text)) == len(text)


FIELDS = {f"k{number}": {"type": "integer"} for number in range(260)}


@pytest.mark.parametrize(
    "constraint",
    [
        Constraint(
            SCHEMA, json.dumps({"type": "object", "properties": FIELDS, "required": ["k259"]})
        ),
        Constraint(
            SCHEMA, json.dumps({"type": "object", "properties": dict(list(FIELDS.items())[:200])})
        ),
        Constraint(ConstraintKind.CHOICE, json.dumps([f"item {place}" for place in range(1000)])),
    ],
)
def test_what_is_too_complex_behind_the_first_letter_of_each_answer_is_refused(
    constraint: Constraint,
) -> None:
    assert refused(constraint) == TOO_COMPLEX


def test_what_is_too_complex_in_some_answers_only_is_not_refused() -> None:
    objects = {"type": "object", "properties": FIELDS}
    assert tried(Constraint(SCHEMA, json.dumps({"anyOf": [objects, {"type": "null"}]})))


def test_a_union_too_large_for_its_limits_is_refused() -> None:
    parts = [
        {"anyOf": [{"properties": {f"p{i}{j}": {"type": "string"}}} for j in range(4)]}
        for i in range(5)
    ]
    assert "too l" in refused(Constraint(SCHEMA, json.dumps({"type": "object", "allOf": parts})))


def test_modules_of_the_current_folder_are_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "llguidance.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    assert tried(Constraint(REGEX, "[ab]+"))
