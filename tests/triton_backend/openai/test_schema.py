"""Requests as they are read: defaults, precedence, what may stand and ask for nothing."""

from typing import Any

import msgspec
import pytest

from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.messages import Terms
from triton_backend.openai.completion_request import CompletionRequest
from triton_backend.openai.errors import ApiError
from triton_backend.openai.not_yet import CHATS, COMPLETIONS, ELSEWHERE, NOT_YET
from triton_backend.openai.schema import ChatRequest, decode
from triton_backend.request import SamplingParams

USER = {"role": "user", "content": "Hi"}


def chat(**fields: Any) -> ChatRequest:
    body = {"model": "tiny", "messages": [USER], **fields}
    return decode(msgspec.json.encode(body), ChatRequest)


def completion(**fields: Any) -> CompletionRequest:
    body = {"model": "tiny", "prompt": "Hi", **fields}
    return decode(msgspec.json.encode(body), CompletionRequest)


def test_a_chat_without_parameters_samples_as_openai_does() -> None:
    params = chat().params
    assert params == SamplingParams(temperature=1.0, top_p=1.0, max_tokens=None)


def test_a_completion_without_max_tokens_may_fill_the_context() -> None:
    assert completion().params.max_tokens is None


OPTIONAL = sorted(field.name for field in msgspec.structs.fields(ChatRequest) if not field.required)


@pytest.mark.parametrize("name", OPTIONAL)
def test_null_is_the_default_of_every_optional_field(name: str) -> None:
    assert chat(**{name: None}) == chat()


def test_every_parameter_reaches_the_engine() -> None:
    request = chat(
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=-7,
        max_tokens=9,
        min_tokens=2,
        stop=["a", "b"],
        stop_token_ids=[5],
        ignore_eos=True,
        logprobs=True,
        top_logprobs=4,
        n=3,
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias={"7": -100, "8": 1.5},
        include_stop_str_in_output=True,
    )
    assert request.params == SamplingParams(
        temperature=0,
        top_p=0.5,
        top_k=3,
        seed=-7,
        max_tokens=9,
        min_tokens=2,
        stop=("a", "b"),
        stop_token_ids=(5,),
        ignore_eos=True,
        logprobs=4,
        num_choices=3,
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.5,
        logit_bias=((7, -100), (8, 1.5)),
        include_stop=True,
    )


def test_what_is_no_sampling_parameter_reaches_the_engine_too() -> None:
    request = completion(cache_salt="mine", priority=-2, bad_words=["no"])
    assert request.terms == Terms(cache_salt="mine", priority=-2, bad_words=("no",))
    assert completion().terms == Terms()


SCHEMA = {"type": "object", "properties": {"é": {"type": "string"}}}
SCHEMA_TEXT = '{"type":"object","properties":{"é":{"type":"string"}}}'


@pytest.mark.parametrize(
    ("fields", "constraint"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"structured_outputs": {}}, None),
        ({"response_format": {"type": "json_object"}}, ("json_schema", '{"type":"object"}')),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": SCHEMA, "strict": True},
                }
            },
            ("json_schema", SCHEMA_TEXT),
        ),
        ({"structured_outputs": {"regex": "a+"}}, ("regex", "a+")),
        ({"structured_outputs": {"json": SCHEMA}}, ("json_schema", SCHEMA_TEXT)),
        (
            {"structured_outputs": {"choice": ["a"]}, "response_format": {"type": "text"}},
            ("choice", '["a"]'),
        ),
    ],
)
def test_a_constraint_comes_in_two_fields(
    fields: dict[str, Any], constraint: tuple[str, str] | None
) -> None:
    expected = constraint and Constraint(ConstraintKind(constraint[0]), constraint[1])
    assert chat(**fields).params.constraint == expected
    assert completion(**fields).params.constraint == expected


@pytest.mark.parametrize("name", ["response_format", "structured_outputs"])
def test_the_engines_refusal_of_a_constraint_names_the_field_that_it_came_in(name: str) -> None:
    values: dict[str, Any] = {
        "response_format": {"type": "json_object"},
        "structured_outputs": {"regex": "a"},
    }
    assert chat(**{name: values[name]}).names["constraint.text"] == name


def test_max_completion_tokens_counts_where_max_tokens_is_given_too() -> None:
    assert chat(max_tokens=5).params.max_tokens == 5
    assert chat(max_completion_tokens=6).params.max_tokens == 6
    assert chat(max_tokens=5, max_completion_tokens=6).params.max_tokens == 6


def test_stop_may_be_one_string() -> None:
    assert completion(stop="end").params.stop == ("end",)


def test_an_empty_list_of_stops_stops_nothing() -> None:
    assert completion(stop=[], stop_token_ids=[]).params == SamplingParams()


@pytest.mark.parametrize(
    ("fields", "num_logprobs"),
    [
        ({}, None),
        ({"logprobs": False}, None),
        ({"logprobs": False, "top_logprobs": 0}, None),
        ({"logprobs": True}, 0),
        ({"logprobs": True, "top_logprobs": 20}, 20),
    ],
)
def test_logprobs_of_a_chat(fields: dict[str, Any], num_logprobs: int | None) -> None:
    assert chat(**fields).params.logprobs == num_logprobs


@pytest.mark.parametrize("logprobs", [None, 0, 5])
def test_logprobs_of_a_completion(logprobs: int | None) -> None:
    assert completion(logprobs=logprobs).params.logprobs == logprobs


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        ("", [""]),
        ("Hi", ["Hi"]),
        (["a", "b"], ["a", "b"]),
        ([1, 2], [[1, 2]]),
        ([[1], [2, 3]], [[1], [2, 3]]),
    ],
)
def test_the_four_forms_of_a_prompt(prompt: Any, prompts: list[Any]) -> None:
    assert completion(prompt=prompt).prompts(4) == prompts


def test_labels_of_a_request_are_harmless() -> None:
    labels = {
        "user": "u",
        "metadata": {"a": "b"},
        "safety_identifier": "s",
        "prompt_cache_key": "k",
    }
    assert chat(**labels).params == chat().params


CHAT_FIELDS, COMPLETION_FIELDS = (
    {*kind.__struct_fields__} for kind in (ChatRequest, CompletionRequest)
)
OF_NEITHER = sorted(NOT_YET.keys() - ELSEWHERE.keys())


@pytest.mark.parametrize("name", OF_NEITHER)
def test_a_field_that_is_not_carried_out_may_be_null(name: str) -> None:
    assert chat(**{name: None}) == chat()


def test_a_field_of_one_endpoint_is_known_to_the_other_and_where_it_belongs() -> None:
    of_one = dict.fromkeys(CHAT_FIELDS - COMPLETION_FIELDS, CHATS)
    assert of_one | dict.fromkeys(COMPLETION_FIELDS - CHAT_FIELDS, COMPLETIONS) == ELSEWHERE


def test_a_field_of_the_other_endpoint_may_ask_for_nothing_and_is_sent_there_otherwise() -> None:
    assert chat(prompt=None, echo=False) == chat()
    assert completion(messages=None) == completion()
    with pytest.raises(ApiError, match=r"^echo belongs to /v1/completions; leave it out") as caught:
        chat(echo=True)
    assert (caught.value.status, caught.value.param) == (400, "echo")
    with pytest.raises(ApiError, match=r"^top_logprobs belongs to /v1/chat/completions"):
        completion(top_logprobs=2)


IDLE = [(name, value) for name, values in NOT_YET.items() for value in values]


@pytest.mark.parametrize(("name", "value"), IDLE)
def test_a_field_that_is_not_carried_out_may_ask_for_nothing(name: str, value: object) -> None:
    assert chat(**{name: value}) == chat()
    if name != "echo":  # which completions carry out
        assert completion(**{name: value}) == completion()


@pytest.mark.parametrize("name", OF_NEITHER)
def test_a_field_that_is_not_carried_out_is_refused_by_name(name: str) -> None:
    with pytest.raises(ApiError, match=rf"^{name} is not supported") as caught:
        chat(**{name: {"x": 1}})
    assert (caught.value.status, caught.value.param) == (400, name)


def test_no_field_is_both_carried_out_and_not() -> None:
    assert not (CHAT_FIELDS | COMPLETION_FIELDS).intersection(OF_NEITHER)


def test_an_unknown_field_is_answered_with_close_matches() -> None:
    with pytest.raises(ApiError, match="Did you mean max_tokens"):
        chat(max_token=5)


def test_an_unknown_field_is_answered_with_each_name_that_counts_once() -> None:
    with pytest.raises(ApiError) as caught:
        completion(moon=1)
    named = str(caught.value).rpartition("Known: ")[2].removesuffix(".").split(", ")
    assert named == sorted(COMPLETION_FIELDS)


def test_minus_one_turns_top_k_off_and_other_numbers_below_zero_are_refused() -> None:
    assert chat(top_k=-1).params == chat(top_k=0).params
    with pytest.raises(ApiError, match="top_k"):
        chat(top_k=-2)


def test_a_long_name_is_cut_short() -> None:
    with pytest.raises(ApiError) as caught:
        chat(**{"x" * 10_000: 1})
    assert caught.value.param == "x" * 64 + "..."
    assert len(str(caught.value)) < 2000


def test_a_long_name_inside_an_option_is_cut_short() -> None:
    with pytest.raises(ApiError, match="stream_options has no field 'xxx") as caught:
        chat(stream=True, stream_options={"x" * 10_000: 1})
    assert len(str(caught.value)) < 200
