"""Masks against vocabularies small enough to list, and whole answers over the real one."""

import json
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from builder.errors import EngineError, RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.structured.grammars import grammar_of
from triton_backend.structured.guidance import GuidanceProvider
from triton_backend.structured.mask import AnswerMask
from triton_backend.tokenizer import Tokenizer

TOKENS = (b"a", b"b", b"ab", b"", b"1", b"ba", b"1a", b"")
"""Id 3 is a control token and ends answers, 7 is padding."""
END = 3


def encode(text: str) -> list[int]:
    """Single characters: not what a greedy tokenizer would give."""
    return [TOKENS.index(character.encode()) for character in text]


def small(encode: Callable[[str], list[int]] = encode) -> GuidanceProvider:
    return GuidanceProvider(TOKENS, encode, trial=grammar_of)


def regex(pattern: str) -> Constraint:
    return Constraint(ConstraintKind.REGEX, pattern)


def allowed(mask: AnswerMask, vocab_size: int = len(TOKENS)) -> list[int]:
    """The ids that a mask leaves, which must be the ids that it keeps."""
    logits = np.arange(vocab_size, dtype=np.float32)
    mask.apply(logits)
    left = np.flatnonzero(logits > -np.inf)
    assert (logits[left] == left).all()
    assert left.tolist() == [each for each in range(vocab_size) if mask.keeps(each)]
    return left.tolist()


def test_a_mask_leaves_the_tokens_that_a_whole_answer_may_begin_with() -> None:
    assert allowed(small().compile(regex("(ab|ba)+1?")).start({END})) == [0, 1, 2, 5]


def test_it_goes_on_with_what_was_accepted() -> None:
    mask = small().compile(regex("(ab|ba)+1?")).start({END})
    found = []
    for token_id in (0, 1, 4):
        mask.accept(token_id)
        found.append((allowed(mask), mask.is_complete))
    assert found == [([1, 5], False), ([0, 1, 2, 3, 4, 5], False), ([3], True)]


def test_an_answer_that_may_end_may_end_by_any_stopping_id() -> None:
    mask = small().compile(regex("a1?")).start({END, 5})
    mask.accept(0)
    assert allowed(mask) == [3, 4, 5]


def test_without_stopping_ids_a_complete_answer_leaves_nothing() -> None:
    mask = small().compile(regex("a")).start(())
    mask.accept(0)
    assert mask.is_complete
    assert allowed(mask) == []


def test_a_stopping_id_of_ordinary_text_is_text_where_the_constraint_wants_it() -> None:
    mask = small().compile(regex("ab")).start({1})
    mask.accept(0)
    assert allowed(mask) == [1]


def test_an_id_that_ends_the_answer_moves_nothing() -> None:
    mask = small().compile(regex("a?1")).start({END})
    mask.accept(END)
    assert allowed(mask) == [0, 4]


def test_a_token_that_is_not_allowed_is_an_error() -> None:
    mask = small().compile(regex("ab")).start({END})
    with pytest.raises(EngineError, match="not followed"):
        mask.accept(4)


def test_control_tokens_and_padding_are_never_text() -> None:
    assert allowed(small().compile(regex("(.|\n)*")).start(())) == [0, 1, 2, 4, 5, 6]


def test_text_that_must_come_next_comes_in_the_tokens_of_the_model() -> None:
    assert allowed(small().compile(regex("ab1")).start({END})) == [0]


def test_a_tokenizer_that_gives_another_text_is_not_followed() -> None:
    def spaced(text: str) -> list[int]:
        return [4, *encode(text)]

    assert allowed(small(spaced).compile(regex("ab1")).start({END})) == [2]


def test_answers_to_one_constraint_do_not_share_their_place() -> None:
    provider = small()
    first, second = (provider.compile(regex("ab*1")).start({END}) for _ in range(2))
    first.accept(0)
    assert (allowed(first), allowed(second)) == ([1, 4], [0, 2])


def test_a_mask_that_was_begun_elsewhere_is_the_mask() -> None:
    guide = small().compile(regex("(ab|ba)+1?"))
    begun, plain = guide.start({END}), guide.start({END})
    for token_id in (0, 1, 4):
        begun.begin()
        begun.begin()
        assert allowed(begun) == allowed(plain)
        begun.begin()
        for mask in (begun, plain):
            mask.accept(token_id)
    begun.begin()
    assert begun.is_complete
    assert allowed(begun) == [3]


def test_a_mask_whose_answer_goes_on_before_it_was_asked_for_waits_for_itself() -> None:
    mask = small().compile(regex("ab*1")).start({END})
    mask.accept(0)
    mask.begin()
    mask.accept(1)
    assert allowed(mask) == [1, 4]


def test_an_answer_that_is_whole_when_it_begins_is_complete() -> None:
    mask = small().compile(regex("")).start({END})
    assert mask.is_complete
    assert allowed(mask) == [END]


def test_a_constraint_that_outgrows_its_limits_on_the_way_is_the_requests_mistake() -> None:
    # Counters inside counters: it compiles, and its states explode when it is walked.
    mask = small().compile(regex("((((a{1,100}){1,100}){1,100}){1,100}){1,100}")).start({END})
    for _ in range(200):
        if not mask.keeps(0) or allowed(mask) == [*range(len(TOKENS))]:
            break
        mask.accept(0)
    assert allowed(mask) == [*range(len(TOKENS))]  # nothing is banned, so that something is drawn
    assert not mask.is_complete
    for token_id in (0, END):
        with pytest.raises(RequestError, match="too complex"):
            mask.accept(token_id)


# Whole answers over the vocabulary of a real model.

STOP = 2


@pytest.fixture(scope="module")
def real(smollm2_tokenizer: Tokenizer) -> GuidanceProvider:
    ids = range(smollm2_tokenizer.vocab_size)
    token_bytes = [smollm2_tokenizer.token_bytes(each) for each in ids]
    return GuidanceProvider(token_bytes, smollm2_tokenizer.encode, trial=grammar_of)


def answer(provider: GuidanceProvider, tokenizer: Tokenizer, given: Constraint, seed: int) -> str:
    """Draw an answer from what is allowed; short texts are likelier, so that it comes to an end."""
    rng = random.Random(seed)  # noqa: S311
    mask = provider.compile(given).start({STOP})
    text = b""
    for _ in range(400):
        logits = np.zeros(tokenizer.vocab_size, np.float32)
        mask.apply(logits)
        left = np.flatnonzero(logits == 0).tolist()
        short = [each for each in left if len(tokenizer.token_bytes(each)) <= 1]
        token_id = rng.choice(short if short and rng.random() < 0.8 else left)
        if STOP in left:
            token_id = STOP
        assert mask.keeps(token_id)
        if token_id == STOP:
            return text.decode()
        mask.accept(token_id)
        text += tokenizer.token_bytes(token_id)
    raise AssertionError("the answer did not end")


def draw_schema(rng: random.Random, depth: int) -> dict[str, Any]:
    kinds = ["string", "integer", "boolean", "null", "enum"]
    kind = rng.choice(kinds if depth == 0 else [*kinds, "object", "object", "array"])
    if kind == "string":
        return {"type": kind, "maxLength": rng.randint(0, 5)}
    if kind == "integer":
        return {"type": kind, "minimum": rng.randint(-50, 0), "maximum": rng.randint(1, 500)}
    if kind == "enum":
        return {"enum": rng.sample(["red", "gr een", 'b"lue', 7, None, False], 3)}
    if kind == "array":
        return {"type": kind, "maxItems": 2, "items": draw_schema(rng, depth - 1)}
    if kind == "object":
        names = rng.sample(["name", "the age", "x", "é"], rng.randint(0, 3))
        return {
            "type": kind,
            "properties": {name: draw_schema(rng, depth - 1) for name in names},
            "required": names,
            "additionalProperties": False,
        }
    return {"type": kind}


def conforms(value: Any, schema: dict[str, Any]) -> bool:
    """Check a value against a schema of `draw_schema`."""
    if "enum" in schema:
        return any(value == each and type(value) is type(each) for each in schema["enum"])
    kinds = {"string": str, "integer": int, "boolean": bool, "null": type(None)}
    kind = schema["type"]
    if type(value) is not {**kinds, "array": list, "object": dict}[kind]:
        return False
    if kind == "array":
        return len(value) <= 2 and all(conforms(each, schema["items"]) for each in value)
    if kind == "object":
        parts = schema["properties"]
        return set(value) == set(parts) and all(
            conforms(value[name], parts[name]) for name in parts
        )
    if kind == "integer":
        return bool(schema["minimum"] <= value <= schema["maximum"])
    return kind != "string" or len(value) <= schema["maxLength"]


@pytest.mark.model
@pytest.mark.parametrize("seed", range(12))
def test_answers_to_random_schemas_parse_and_conform(
    real: GuidanceProvider, smollm2_tokenizer: Tokenizer, seed: int
) -> None:
    schema = draw_schema(random.Random(seed), 2)  # noqa: S311
    given = Constraint(ConstraintKind.JSON_SCHEMA, json.dumps(schema))
    for draw in range(3):
        text = answer(real, smollm2_tokenizer, given, draw)
        assert conforms(json.loads(text), schema), schema


@pytest.mark.model
@pytest.mark.parametrize("seed", range(4))
def test_answers_match_a_regular_expression_whole(
    real: GuidanceProvider, smollm2_tokenizer: Tokenizer, seed: int
) -> None:
    pattern = r"(\+|00)[0-9]{2} [a-f]{2,5}(é|😀)?-(yes|no)"
    text = answer(real, smollm2_tokenizer, regex(pattern), seed)
    assert re.fullmatch(pattern, text)


@pytest.mark.model
def test_answers_are_one_of_the_choices(
    real: GuidanceProvider, smollm2_tokenizer: Tokenizer
) -> None:
    choices = ["yes", "no", "not at all", 'say "é/😀"\n']
    given = Constraint(ConstraintKind.CHOICE, json.dumps(choices))
    texts = {answer(real, smollm2_tokenizer, given, seed) for seed in range(40)}
    assert texts <= set(choices)
    assert len(texts) > 2


@pytest.mark.model
@pytest.mark.parametrize("seed", range(4))
def test_answers_follow_a_grammar(
    real: GuidanceProvider, smollm2_tokenizer: Tokenizer, seed: int
) -> None:
    grammar = 'root ::= term ("+" term){0,3}\nterm ::= [0-9]{1,3} | "(" [1-9] "*" [1-9] ")"'
    given = Constraint(ConstraintKind.GRAMMAR, grammar)
    text = answer(real, smollm2_tokenizer, given, seed)
    assert re.fullmatch(r"(\d{1,3}|\(\d\*\d\))(\+(\d{1,3}|\(\d\*\d\))){0,3}", text)
