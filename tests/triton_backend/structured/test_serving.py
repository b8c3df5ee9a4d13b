"""Constrained answers through the engine of a loaded artifact: ids 0 to 255 are bytes, 256 to 258 are control tokens."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.artifact.store import open_artifact
from builder.errors import RequestError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend import loading
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.loading import LoadedModel, load_model
from triton_backend.request import Delta, FinishReason, Request, SamplingParams
from triton_backend.structured.trial import TOO_COMPLEX

SCHEMA, REGEX, CHOICE, GRAMMAR = ConstraintKind
POINT = json.dumps(
    {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "on": {"type": "boolean"}},
        "required": ["x", "on"],
        "additionalProperties": False,
    }
)
KINDS = [
    (SCHEMA, POINT, r'\s*\{\s*"x"\s*:\s*-?\d+\s*,\s*"on"\s*:\s*(true|false)\s*\}\s*'),
    (REGEX, "[a-f]{3}(-[0-9]){2}", "[a-f]{3}(-[0-9]){2}"),
    (CHOICE, '["yes", "no", "é"]', "yes|no|é"),
    (GRAMMAR, 'root ::= [a-c] ("+" [a-c]){2}', r"[a-c](\+[a-c]){2}"),
]


@pytest.fixture
def model(tiny_artifact: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LoadedModel]:
    """An engine whose logits depend on all tokens, and favour nothing."""
    limits = make_limits(max_seq_len=400, num_blocks=400)
    executor = ScriptedExecutor(limits, block_size=4, vocab_size=259)
    monkeypatch.setattr(loading, "open_executor", lambda *_, **__: executor)
    loaded = load_model(open_artifact(tiny_artifact))
    yield loaded
    loaded.close()


def answers(model: LoadedModel, *requests: Request) -> dict[tuple[str, int], list[Delta]]:
    """Serve requests together; give the deltas of each choice."""
    for request in requests:
        model.engine.submit(request)
    found: dict[tuple[str, int], list[Delta]] = {}
    while model.engine.has_work:
        for delta in model.engine.step():
            found.setdefault((delta.request_id, delta.choice), []).append(delta)
    return found


def request_of(name: str, kind: ConstraintKind, text: str, **params: Any) -> Request:
    # Cold enough that the numbers of the schema come to an end.
    sampling = SamplingParams(
        constraint=Constraint(kind, text), **{"temperature": 1.0, "seed": 1, **params}
    )
    return Request(name, tuple(b"prompt " + name.encode()), sampling)


def text_of(deltas: list[Delta]) -> str:
    assert deltas[-1].error is None
    return "".join(delta.text for delta in deltas)


@pytest.mark.parametrize(("kind", "text", "pattern"), KINDS)
def test_an_answer_conforms_or_is_cut_by_its_length(
    model: LoadedModel, kind: ConstraintKind, text: str, pattern: str
) -> None:
    requests = [request_of(f"r{seed}", kind, text, seed=seed, max_tokens=300) for seed in range(4)]
    ended = [
        text_of(deltas)
        for deltas in answers(model, *requests).values()
        if deltas[-1].finish_reason == FinishReason.STOP
    ]
    assert ended
    assert all(re.fullmatch(pattern, each) for each in ended)


def test_an_answer_that_nothing_can_follow_ends_without_an_end_token(model: LoadedModel) -> None:
    request = request_of("a", REGEX, "abc", ignore_eos=True, temperature=0)
    (deltas,) = answers(model, request).values()
    assert text_of(deltas) == "abc"
    assert deltas[-1].finish_reason == FinishReason.STOP
    assert deltas[-1].num_generated_tokens == 3


def test_a_complete_answer_ends_before_its_minimum(model: LoadedModel) -> None:
    (deltas,) = answers(model, request_of("a", REGEX, "a?b", min_tokens=9)).values()
    assert text_of(deltas) in {"b", "ab"}


def test_a_constrained_answer_is_the_same_alone_and_beside_others(model: LoadedModel) -> None:
    requests = [request_of(f"r{place}", kind, text) for place, (kind, text, _) in enumerate(KINDS)]
    free = Request("free", tuple(b"free"), SamplingParams(max_tokens=20, seed=1))
    together = answers(model, *requests, free)
    for request in (*requests, free):
        ((key, alone),) = answers(model, request).items()
        assert text_of(alone) == text_of(together[key])


def test_choices_of_a_constrained_request_each_conform(model: LoadedModel) -> None:
    request = request_of("a", REGEX, "[a-z]{8}", num_choices=5)
    texts = [text_of(deltas) for deltas in answers(model, request).values()]
    assert len(set(texts)) == 5
    assert all(re.fullmatch("[a-z]{8}", text) for text in texts)


def test_a_bad_constraint_is_refused_at_submit_and_leaves_nothing(model: LoadedModel) -> None:
    with pytest.raises(RequestError, match="what is not supported: uniqueItems"):
        model.engine.submit(request_of("a", SCHEMA, '{"type": "array", "uniqueItems": true}'))
    assert not model.engine.has_work
    assert answers(model, request_of("a", REGEX, "b"))


@pytest.mark.parametrize("params", [{"ignore_eos": True}, {"min_tokens": 160}])
def test_an_answer_that_outgrows_its_grammar_is_the_requests_mistake_and_counted_so(
    model: LoadedModel, caplog: pytest.LogCaptureFixture, params: dict[str, Any]
) -> None:
    ambiguous = "root ::= s\ns ::= s s | [a-z] | s s s"
    asked = request_of("r", GRAMMAR, ambiguous, max_tokens=200, temperature=0, **params)
    last = answers(model, asked)["r", 0][-1]
    assert (last.finish_reason, last.error) == (FinishReason.INVALID, TOO_COMPLEX)
    assert last.num_generated_tokens == 149
    assert model.engine.metrics.ends == {FinishReason.INVALID: 1}
    assert not caplog.records


YES = (CHOICE, '["yes"]')


@pytest.mark.parametrize(
    ("kind", "text", "params", "fields"),
    [
        (*YES, {"logit_bias": ((ord("y"), -100.0),)}, "logit_bias with constraint"),
        (*YES, {"bad_words": ((ord("y"),),)}, "bad_words with constraint"),
        (
            *YES,
            {"stop_token_ids": (ord("y"),), "min_tokens": 2},
            "min_tokens with constraint",
        ),
    ],
)
@pytest.mark.parametrize("temperature", [0, 1.0])
def test_fields_that_leave_nothing_of_a_constraint_are_the_requests_mistake(
    model: LoadedModel,
    kind: ConstraintKind,
    text: str,
    params: dict[str, Any],
    fields: str,
    temperature: float,
) -> None:
    asked = request_of("r", kind, text, temperature=temperature, **params)
    last = answers(model, asked)["r", 0][-1]
    assert last.finish_reason == FinishReason.INVALID
    assert (
        last.error == f"{fields} leaves no token to go on with after 0 generated tokens; relax it."
    )


@pytest.mark.parametrize("params", [{}, {"min_tokens": 3}, {"ignore_eos": True}])
def test_an_answer_that_is_whole_when_it_begins_ends_there(
    model: LoadedModel, params: dict[str, Any]
) -> None:
    deltas = answers(model, request_of("r", REGEX, "", **params))["r", 0]
    assert deltas[-1].finish_reason == FinishReason.STOP
    assert text_of(deltas) == ""
    assert deltas[-1].num_generated_tokens <= 1
