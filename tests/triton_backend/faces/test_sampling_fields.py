"""Sampling fields by vLLM's names: taken, neutral, unsupported or unknown, and nothing else."""

from typing import Any

import pytest

from builder.errors import RequestError
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.faces.sampling_fields import (
    NEUTRAL,
    SUPPORTED,
    TERMS,
    sampling_params,
    terms_of,
)
from triton_backend.messages import Terms
from triton_backend.request import SamplingParams


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {}),
        (
            {"temperature": 0.5, "top_p": 1, "top_k": 3},
            {"temperature": 0.5, "top_p": 1, "top_k": 3},
        ),
        ({"temperature": "0.1", "top_p": "0.95"}, {"temperature": 0.1, "top_p": 0.95}),
        ({"max_tokens": "12", "min_tokens": "3"}, {"max_tokens": 12, "min_tokens": 3}),
        ({"top_k": -1, "seed": -1}, {}),
        ({"top_k": "-1", "seed": "7"}, {"seed": 7}),
        ({"seed": 2**64 - 1}, {"seed": 2**64 - 1}),
        ({"stop": "END"}, {"stop": ("END",)}),
        (
            {"stop": ["a", "b"], "stop_token_ids": [1, 2]},
            {"stop": ("a", "b"), "stop_token_ids": (1, 2)},
        ),
        ({"ignore_eos": True}, {"ignore_eos": True}),
        ({"ignore_eos": "True"}, {"ignore_eos": True}),
        ({"ignore_eos": "false"}, {}),
        ({"logprobs": 2}, {"logprobs": 2}),
        ({"n": "3", "min_p": 0.1}, {"num_choices": 3, "min_p": 0.1}),
        (
            {"presence_penalty": 1, "frequency_penalty": "-0.5", "repetition_penalty": 1.5},
            {"presence_penalty": 1, "frequency_penalty": -0.5, "repetition_penalty": 1.5},
        ),
        ({"include_stop_str_in_output": True}, {"include_stop": True}),
        ({"logit_bias": {"7": 1.5, "8": -100}}, {"logit_bias": ((7, 1.5), (8, -100))}),
        ({"logit_bias": {}}, {}),
        (
            {"structured_outputs": {"regex": "a+", "json": None}},
            {"constraint": Constraint(ConstraintKind.REGEX, "a+")},
        ),
        (
            {"guided_decoding": '{"choice": ["a", "é"]}'},
            {"constraint": Constraint(ConstraintKind.CHOICE, '["a", "é"]')},
        ),
        (dict.fromkeys([*SUPPORTED, *TERMS, *NEUTRAL]), {}),
    ],
)
def test_supported_fields_are_taken(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    assert sampling_params(fields) == SamplingParams(**expected)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in NEUTRAL.items() for value in values]
)
def test_a_value_that_asks_for_nothing_is_taken(name: str, value: object) -> None:
    assert sampling_params({name: value}) == SamplingParams()


@pytest.mark.parametrize("name", [name for name, values in NEUTRAL.items() if len(values) < 2])
def test_any_other_value_of_what_is_not_supported_is_refused_by_name(name: str) -> None:
    for value in (2, 0.5, "secret", ["secret"], {"secret": 1}):
        with pytest.raises(RequestError) as caught:
            sampling_params({name: value})
        assert str(caught.value) == (
            f"sampling field {name} is not supported by this model; leave it out."
        )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("best_of", True),
        ("best_of", 1.0),
        ("use_beam_search", 0),
        ("detokenize", 1),
        ("skip_special_tokens", 1.0),
    ],
)
def test_true_is_no_number_and_no_number_is_true(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=f"sampling field {name} is not supported"):
        sampling_params({name: value})


@pytest.mark.parametrize("name", ["n", "repetition_penalty", "presence_penalty", "min_p"])
def test_true_is_no_number_of_a_field_that_takes_one(name: str) -> None:
    with pytest.raises(RequestError, match=r"must be (an integer|a number) from .* got True\."):
        sampling_params({name: True})


@pytest.mark.parametrize(
    ("text", "number"), [("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("+5", 5.0), ("5e-1", 0.5)]
)
def test_a_number_may_be_spelled(text: str, number: float) -> None:
    assert sampling_params({"temperature": text}).temperature == number


def test_an_unknown_field_is_answered_with_the_names_that_count() -> None:
    with pytest.raises(RequestError) as caught:
        sampling_params({"moon": 1})
    named = str(caught.value).rpartition("Known: ")[2].removesuffix(".").split(", ")
    assert named == sorted([*SUPPORTED, *TERMS])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"temprature": 1}, "unknown sampling field 'temprature'. Did you mean temperature?"),
        ({"temperature": "hot"}, "temperature must be a number; got a str of 3 characters."),
        ({"temperature": "nan"}, "temperature must be a number; got a str of 3 characters."),
        ({"temperature": "Infinity"}, "temperature must be a number; got a str of 8 characters."),
        ({"temperature": "0_1"}, "temperature must be a number; got a str of 3 characters."),
        ({"temperature": " 1"}, "temperature must be a number; got a str of 2 characters."),
        ({"temperature": "."}, "temperature must be a number; got a str of 1 characters."),
        ({"max_tokens": "1_0"}, "max_tokens must be a number; got a str of 3 characters."),
        ({"max_tokens": "\uff11\uff10"}, "max_tokens must be a number; got a str of 2 characters."),
        ({"max_tokens": "9" * 5000}, "max_tokens must be a number; got a str of 5000 characters."),
        ({"temperature": -1}, "temperature must be a number from 0 to 100; got -1."),
        ({"temperature": True}, "temperature must be a number from 0 to 100; got True."),
        ({"temperature": [1]}, "temperature must be a number from 0 to 100; got a list."),
        ({"max_tokens": 2.5}, "max_tokens must be an integer"),
        ({"max_tokens": "2.5"}, "max_tokens must be a number; got a str"),
        ({"max_tokens": 0}, "max_tokens must be an integer from 1"),
        ({"top_k": -2}, "top_k must be an integer from 0"),
        ({"top_k": -1.0}, "top_k must be an integer from 0 to 2147483647; got -1.0."),
        ({"seed": -1.0}, "seed must be an integer from"),
        ({"seed": False}, "seed must be an integer from"),
        ({"stop": 3}, "stop must be a list."),
        ({"stop": [3]}, "stop[0] must be a str; got 3."),
        ({"stop": [""]}, "stop[0] must have 1 to 1024 characters"),
        ({"stop_token_ids": 3}, "stop_token_ids must be a list."),
        ({"stop_token_ids": ["3"]}, "stop_token_ids[0] must be an integer"),
        ({"ignore_eos": "yes"}, "ignore_eos must be true or false; got a str of 3 characters."),
        ({"ignore_eos": 1}, "ignore_eos must be true or false; got 1."),
        ({"logit_bias": [1]}, "logit_bias must be an object of biases by token id."),
        ({"logit_bias": {"secret": 1}}, "an id of logit_bias must be a number; got a str of 6"),
        ({"logit_bias": {"5": "much"}}, "logit_bias must be a number; got a str"),
        ({"logit_bias": {"5": 101}}, "the bias of logit_bias[0] must be a number from -100"),
        ({"guided_decoding": "{secret"}, "guided_decoding must be a JSON object; it is no JSON."),
        ({"guided_decoding": [1]}, "guided_decoding must be a JSON object."),
        ({"structured_outputs": {"regex": 7}}, "structured_outputs.regex must be a string."),
        (
            {"structured_outputs": {"regex": "a"}, "guided_decoding": {"regex": "a"}},
            "guided_decoding says the same as another field",
        ),
        ({"logprobs": 21}, "logprobs must be an integer from 0 to 20; got 21."),
    ],
)
def test_what_is_wrong_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        sampling_params(fields)
    assert message in str(caught.value)


def test_other_fields_are_read_beside_the_parameters() -> None:
    fields = {"bad_words": ["no"], "priority": "-2", "top_k": 3}
    assert sampling_params(fields) == SamplingParams(top_k=3)
    assert terms_of(fields) == Terms(priority=-2, bad_words=("no",))
    assert terms_of(dict.fromkeys(TERMS)) == terms_of({"bad_words": [], "priority": 0}) == Terms()


@pytest.mark.parametrize("value", [False, True, "", {}, (), 0.0])
def test_what_is_empty_or_false_is_not_absent(value: object) -> None:
    for name in TERMS:
        with pytest.raises(RequestError, match=f"^{name} must be an? "):
            terms_of({name: value})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"bad_words": "secret"}, "bad_words must be a list."),
        ({"bad_words": 0}, "bad_words must be a list."),
        ({"priority": []}, "priority must be an integer from"),
        ({"bad_words": ["a", 3]}, "bad_words[1] must be a str; got 3."),
        ({"priority": 1.5}, "priority must be an integer from"),
        ({"priority": "soon"}, "priority must be a number; got a str of 4 characters."),
    ],
)
def test_what_is_wrong_in_other_fields_is_refused_by_name(
    fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(RequestError) as caught:
        terms_of(fields)
    assert message in str(caught.value)


def test_a_number_of_many_digits_is_refused_like_any_other() -> None:
    with pytest.raises(RequestError, match="max_tokens must be a number; got a str of 5000"):
        sampling_params({"max_tokens": "9" * 5000})
