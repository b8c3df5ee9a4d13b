"""Requests are checked when they are made; each refusal names the parameter, its bounds and what was given."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from builder.errors import RequestError
from triton_backend.request import Delta, FinishReason, Request, SamplingParams

NAN, INF = float("nan"), float("inf")

BAD: list[tuple[dict[str, Any], str]] = [
    ({"temperature": -0.1}, "temperature must be a number from 0 to 100; got -0.1."),
    ({"temperature": 100.5}, "temperature must be a number from 0 to 100; got 100.5."),
    ({"temperature": NAN}, "temperature must be a number from 0 to 100; got nan."),
    ({"temperature": INF}, "temperature must be a number from 0 to 100; got inf."),
    ({"temperature": True}, "temperature must be a number from 0 to 100; got True."),
    ({"temperature": None}, "temperature must be a number from 0 to 100; got None."),
    ({"temperature": "hot"}, "temperature must be a number from 0 to 100; got a str of 3 char"),
    (
        {"temperature": 10**400},
        "temperature must be a number from 0 to 100; got an integer of 1329",
    ),
    ({"top_p": 1.01}, "top_p must be a number from 0 to 1; got 1.01."),
    ({"top_p": -1}, "top_p must be a number from 0 to 1; got -1."),
    ({"top_p": NAN}, "top_p must be a number from 0 to 1; got nan."),
    ({"top_k": -1}, "top_k must be an integer from 0 to 2147483647; got -1."),
    ({"top_k": 2.0}, "top_k must be an integer from 0 to 2147483647; got 2.0."),
    ({"top_k": False}, "top_k must be an integer from 0 to 2147483647; got False."),
    ({"seed": 2**64}, "seed must be an integer from -9223372036854775808 to 18446744073709551615"),
    ({"seed": -(2**63) - 1}, "seed must be an integer from -9223372036854775808"),
    ({"seed": 10**5000}, "got an integer of 16610 bits."),
    ({"seed": "7"}, "got a str of 1 characters."),
    ({"max_tokens": 0}, "max_tokens must be an integer from 1 to 2147483647; got 0."),
    ({"max_tokens": 2**31}, "max_tokens must be an integer from 1 to 2147483647; got 2147483648."),
    ({"max_tokens": True}, "max_tokens must be an integer from 1 to 2147483647; got True."),
    ({"min_tokens": -1}, "min_tokens must be an integer from 0 to 2147483647; got -1."),
    ({"min_tokens": 3, "max_tokens": 2}, "min_tokens must be at most max_tokens (2); got 3."),
    ({"stop_token_ids": [1]}, "stop_token_ids must be a tuple; got a list."),
    ({"stop_token_ids": (1, -2)}, "stop_token_ids[1] must be an integer from 0 to 2147483647"),
    ({"stop_token_ids": (True,)}, "stop_token_ids[0] must be an integer"),
    ({"stop_token_ids": tuple(range(257))}, "stop_token_ids must hold at most 256 ids; got 257."),
    ({"stop": "secret"}, "stop must be a tuple; got a str of 6 characters."),
    ({"stop": ("ok", 3)}, "stop[1] must be a str; got 3."),
    ({"stop": ("",)}, "stop[0] must have 1 to 1024 characters; got 0."),
    ({"stop": ("x" * 1025,)}, "stop[0] must have 1 to 1024 characters; got 1025."),
    (
        {"stop": ("x" * 1024,) * 4 + ("y",)},
        "stop must have at most 4096 characters in all; got 4097.",
    ),
    ({"stop": ("x",) * 17}, "stop must hold at most 16 strings; got 17."),
    (
        {"logits_processors": ("x" * 129,)},
        "logits_processors[0] must have 1 to 128 characters; got",
    ),
    ({"ignore_eos": 1}, "ignore_eos must be true or false; got 1."),
    ({"logprobs": -1}, "logprobs must be an integer from 0 to 20; got -1."),
    ({"logprobs": 21}, "logprobs must be an integer from 0 to 20; got 21."),
    ({"logprobs": True}, "logprobs must be an integer from 0 to 20; got True."),
]

GOOD: list[dict[str, Any]] = [
    {},
    {"temperature": 0},
    {"temperature": 100, "top_p": 0, "top_k": 2**31 - 1},
    {"seed": 2**64 - 1},
    {"seed": -(2**63)},
    {"max_tokens": 1, "min_tokens": 1},
    {"stop_token_ids": tuple(range(256)), "stop": ("x" * 256,) * 16},
    {"ignore_eos": True},
    {"logprobs": 0},
    {"logprobs": 20},
]


@pytest.mark.parametrize(("given", "message"), BAD, ids=[message for _, message in BAD])
def test_a_bad_value_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        SamplingParams(**given)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("given", GOOD, ids=str)
def test_a_value_within_bounds_is_taken(given: dict[str, Any]) -> None:
    params = SamplingParams(**given)
    assert all(getattr(params, name) == value for name, value in given.items())


def test_by_default_an_answer_is_drawn_from_all_and_ends_by_itself() -> None:
    params = SamplingParams()
    assert (params.temperature, params.top_k, params.top_p) == (1.0, 0, 1.0)
    assert (params.seed, params.max_tokens, params.min_tokens) == (None, None, 0)
    assert (params.stop_token_ids, params.stop, params.ignore_eos) == ((), (), False)


@pytest.mark.parametrize(("temperature", "is_greedy"), [(0, True), (1e-4, True), (1e-3, False)])
def test_a_very_low_temperature_is_greedy(temperature: float, is_greedy: bool) -> None:
    assert SamplingParams(temperature=temperature).is_greedy == is_greedy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("", (1,)), "request_id must be a string of 1 to 256 characters; got a str of 0"),
        (("x" * 257, (1,)), "request_id must be a string of 1 to 256 characters; got a str of 257"),
        ((7, (1,)), "request_id must be a string of 1 to 256 characters; got 7."),
        (("a", [1]), "prompt_token_ids must be a tuple; got a list."),
        (("a", (1, "2")), "prompt_token_ids must hold integers only; got a str."),
        (("a", (1, True)), "prompt_token_ids must hold integers only; got a bool."),
        (("a", (1,), {}), "params must be a SamplingParams; got a dict."),
    ],
)
def test_a_bad_request_is_refused(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RequestError) as refused:
        Request(*given)
    assert message in str(refused.value)


def test_a_request_has_default_params_and_does_not_change() -> None:
    request = Request("a", (1, 2))
    assert request.params == SamplingParams()
    with pytest.raises(FrozenInstanceError):
        request.request_id = "b"  # type: ignore[misc]


def test_no_repr_shows_a_prompt_or_an_answer() -> None:
    request = Request("a", (31337, 2), SamplingParams(stop=("secret",)))
    delta = Delta(
        request_id="a",
        token_ids=(31337,),
        text="secret",
        finish_reason=FinishReason.STOP,
        stop_reason="secret",
        num_prompt_tokens=2,
        num_generated_tokens=1,
    )
    shown = repr(request) + repr(delta)
    assert "31337" not in shown
    assert "secret" not in shown
    assert "stop" in shown


def test_finish_reasons_are_plain_words() -> None:
    assert [str(reason) for reason in FinishReason] == [
        "stop",
        "length",
        "cancelled",
        "invalid",
        "timeout",
        "error",
    ]
