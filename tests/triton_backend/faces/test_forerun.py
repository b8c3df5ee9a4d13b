"""The face `forerun`: every input counts or is refused."""

from typing import Any

import numpy as np
import pytest

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.faces.forerun import FORERUN
from triton_backend.faces.forerun_fields import SCALARS
from triton_backend.messages import Claim, PlainText, Segments, Terms, TokenIds
from triton_backend.protocol import Array, Ask, Inputs, floats, integers, strings
from triton_backend.request import SamplingParams
from triton_backend.segments import MAX_SEGMENTS, Segment, SegmentKind


def read(parameters: dict[str, object] | None = None, **arrays: Array) -> Ask:
    given = arrays or {"text": strings(b"hi")}
    return FORERUN.read(Inputs(FORERUN.inputs, given), parameters or {}, ())


def test_a_bare_prompt_asks_for_a_stream_with_the_defaults() -> None:
    ask = read()
    assert (ask.prompt, ask.is_streaming) == (PlainText("hi"), True)
    assert ask.params == SamplingParams()


def test_a_prompt_comes_in_three_forms() -> None:
    assert read(token_ids=integers(3, 4)).prompt == TokenIds((3, 4))
    assert read(text=strings("é".encode())).prompt == PlainText("é")
    segments = read(
        segments=strings(b"<s>", b"<s>"), segment_kinds=strings(b"control", b"text")
    ).prompt
    assert segments == Segments(
        (Segment(SegmentKind.CONTROL, "<s>"), Segment(SegmentKind.TEXT, "<s>"))
    )


def test_every_input_counts() -> None:
    ask = read(
        text=strings(b"hi"),
        max_tokens=integers(9),
        min_tokens=integers(2),
        temperature=floats(0.7),
        top_k=integers(40),
        top_p=floats(0.95),
        seed=np.array([-5], np.int64),
        stop=strings(b"a", b"b"),
        stop_token_ids=integers(7, 8),
        ignore_eos=np.array([True]),
        logprobs=integers(2),
        stream=np.array([False]),
        include_stop=np.array([True]),
        prompt_logprobs=integers(1),
        num_choices=integers(3),
        min_p=floats(0.05),
        repetition_penalty=floats(1.1),
        presence_penalty=floats(0.5),
        frequency_penalty=floats(-0.5),
        logit_bias_ids=integers(3, 4),
        logit_bias=floats(0.1, -100),
        bad_words=strings(b"no", "né".encode()),
        logits_processors=strings(b"mine"),
        constraint_kind=strings(b"regex"),
        constraint=strings(b"a+"),
        speculation=np.array([True]),
        priority=integers(-2),
        cache_salt=strings(b"mine"),
        no_store=np.array([True]),
    )
    assert ask.terms == Terms(cache_salt="mine", store=False, priority=-2, bad_words=("no", "né"))
    assert ask.params == SamplingParams(
        min_p=0.05,
        include_stop=True,
        prompt_logprobs=1,
        num_choices=3,
        repetition_penalty=1.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logit_bias=((3, 0.1), (4, -100.0)),
        logits_processors=("mine",),
        constraint=Constraint(ConstraintKind.REGEX, "a+"),
        speculation=True,
        temperature=0.7,
        top_k=40,
        top_p=0.95,
        seed=-5,
        max_tokens=9,
        min_tokens=2,
        stop_token_ids=(7, 8),
        stop=("a", "b"),
        ignore_eos=True,
        logprobs=2,
    )
    assert not ask.is_streaming


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": integers(3)}, "as one of token_ids, text, segments; got none."),
    ({"text": strings(b"a"), "token_ids": integers(1)}, "got token_ids and text."),
    (
        {"text": strings(b"a"), "segment_kinds": strings(b"text")},
        "segment_kinds belongs to segments; the prompt came as text.",
    ),
    ({"segments": strings(b"a")}, "equally many; got 1 and 0."),
    (
        {
            "segments": strings(*[b"a"] * (MAX_SEGMENTS + 1)),
            "segment_kinds": strings(*[b"text"] * (MAX_SEGMENTS + 1)),
        },
        "a prompt has at most 131072 segments; got 131073. Join neighbouring texts.",
    ),
    (
        {"segments": strings(b"a", b"b"), "segment_kinds": strings(b"text")},
        "equally many; got 2 and 1.",
    ),
    (
        {"segments": strings(b"a", b"b"), "segment_kinds": strings(b"text", b"secret")},
        "segment_kinds[1] must be control or text.",
    ),
    ({"text": strings(b"\xff")}, "text is not UTF-8 text from byte 0 on."),
    ({"text": strings(b"a"), "temperature": floats(-1)}, "temperature must be a number from 0"),
    ({"text": strings(b"a"), "temperature": floats(np.nan)}, "temperature must be a number"),
    ({"text": strings(b"a"), "top_k": integers(-1)}, "top_k must be an integer from 0"),
    ({"text": strings(b"a"), "max_tokens": integers(0)}, "max_tokens must be an integer from 1"),
    ({"text": strings(b"a"), "logprobs": integers(21)}, "logprobs must be an integer from 0 to 20"),
    ({"text": strings(b"a"), "stop": strings(b"")}, "stop[0] must have 1 to 1024 characters"),
    (
        {"text": strings(b"a"), "logit_bias_ids": integers(1)},
        "logit_bias_ids and logit_bias must be equally many; got 1 and 0.",
    ),
    ({"text": strings(b"a"), "constraint": strings(b"secret")}, "constraint belong together; one"),
    (
        {
            "text": strings(b"a"),
            "constraint": strings(b"a"),
            "constraint_kind": strings(b"secret"),
        },
        "constraint_kind must be one of json_schema, regex, choice, grammar.",
    ),
    ({"text": strings(b"a"), "num_choices": integers(0)}, "num_choices must be an integer from 1"),
    (
        {"text": strings(b"a"), "cache_salt": strings(b"s" * 257)},
        "cache_salt must have at most 256 characters; got 257.",
    ),
]


@pytest.mark.parametrize(("arrays", "message"), REFUSED)
def test_what_is_wrong_is_refused_by_name(arrays: dict[str, Array], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read(**arrays)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_parameter_is_refused_by_name() -> None:
    with pytest.raises(RequestError, match=r"unknown parameter 'max_tokns'. Did you mean max_tok"):
        read({"max_tokns": 3})
    with pytest.raises(RequestError, match="max_tokens is a tensor of this model and came as a"):
        read({"max_tokens": 3})
    assert read({"id": "r1"}).prompt == PlainText("hi")


def test_who_vouches_for_a_caller_comes_in_parameters() -> None:
    claim: dict[str, object] = {"tenant": "t", "tenant_expires": 7, "tenant_tag": "ab"}
    assert read(claim).terms == Terms(claim=Claim("t", 7, "ab"))
    assert read().terms.claim is None


@pytest.mark.parametrize(
    "change", [{"tenant_expires": "7"}, {"tenant_expires": True}, {"tenant": 7}]
)
def test_a_claim_of_a_wrong_type_is_refused_by_name(change: dict[str, object]) -> None:
    claim = {"tenant": "t", "tenant_expires": 7, "tenant_tag": "ab"} | change
    with pytest.raises(RequestError, match=f"the parameter {next(iter(change))} must be a"):
        read(claim)


def test_half_a_claim_is_refused() -> None:
    with pytest.raises(RequestError, match="belong together; got only tenant and tenant_tag"):
        read({"tenant": "t", "tenant_tag": "ab"})


def test_every_input_of_one_value_is_read() -> None:
    """A tensor of the table that nothing reads would be ignored without a word."""
    others = {"token_ids", "text", "segments", "segment_kinds", "stream", "stop", "stop_token_ids"}
    others |= {"logit_bias_ids", "logit_bias", "bad_words", "logits_processors", "constraint"}
    others |= {"constraint_kind", "priority", "cache_salt", "no_store"}
    assert {tensor.name for tensor in FORERUN.inputs} == others | set(SCALARS)
