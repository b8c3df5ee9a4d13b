"""Refusals in the engine's words become OpenAI's error objects."""

import contextlib
import json
from pathlib import Path

import grpc
import pytest

from builder.artifact.store import open_artifact
from builder.errors import RequestError
from tests.triton_backend.making import make_limits
from triton_backend.admission import resolve_max_known
from triton_backend.kv.pool import BlockPool
from triton_backend.loading import load_model
from triton_backend.messages import PlainText
from triton_backend.openai.errors import ApiError, ended, failed, refused, shown
from triton_backend.request import Request, SamplingParams


def refusal(num_prompt: int, *, num_blocks: int = 100, **params: int) -> ApiError:
    """Have the engine refuse a request against limits of 100 tokens and so many blocks."""
    request = Request("id", (1,) * num_prompt, SamplingParams(**params))
    with pytest.raises(RequestError) as caught:
        resolve_max_known(request, make_limits(max_seq_len=100), BlockPool(num_blocks, 4))
    return refused(str(caught.value))


@pytest.mark.parametrize(
    "error",
    [
        refusal(100),
        refusal(90, max_tokens=11),
        refusal(50, num_blocks=4),
        refusal(5, num_blocks=4, max_tokens=50),
    ],
)
def test_a_prompt_that_is_too_long_has_openais_code_and_words(error: ApiError) -> None:
    assert (error.status, error.code, error.param) == (400, "context_length_exceeded", None)
    assert str(error).startswith("this model's maximum context length is exceeded: ")


def test_a_text_too_long_to_be_encoded_is_too_long_as_well(artifact: Path) -> None:
    with (
        contextlib.closing(load_model(open_artifact(artifact))) as model,
        pytest.raises(RequestError) as caught,
    ):
        model.encode(PlainText("x" * 1_000_000))
    assert refused(str(caught.value)).code == "context_length_exceeded"


def test_other_refusals_of_the_engine_are_not_about_length() -> None:
    error = refusal(50, min_tokens=90)
    assert (error.code, error.param) == ("invalid_value", "min_tokens")


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("temperature must be lower.", "temperature"),
        ("stop[3] must be shorter.", "stop[3]"),
        ("stop_token_ids[3] must be lower.", "stop_token_ids[3]"),
        ("messages[0].content[12].text must be a string.", "messages[0].content[12].text"),
        ("messages must be a list.", "messages"),
        ("the prompt must have at least 1 token; got 0.", "prompt"),
        ("seeding failed.", None),
        ("segment 3 is not a control token.", None),
    ],
)
def test_the_field_that_a_refusal_opens_with_is_its_param(message: str, param: str | None) -> None:
    error = refused(message)
    assert (error.status, str(error), error.param) == (400, message, param)


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (
            "num_choices 200 is more than can be taken at once.",
            "n 200 is more than can be taken at once.",
        ),
        ("prompt_token_ids[3] must be an id from 0 to 9; got 12.", "prompt[3] must be an id"),
        ("include_stop must be true or false.", "include_stop_str_in_output must be true"),
        ("min_p goes with num_choices; my_num_choices does not.", "goes with n; my_num_choices"),
    ],
)
def test_a_refusal_has_the_names_that_clients_know(message: str, said: str) -> None:
    error = refused(message)
    assert said in str(error)
    assert str(error).startswith(error.param or "none")


NAMES = {"prompt_token_ids": "messages", "constraint": "a", "constraint.text": "b"}


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("prompt_token_ids[3] must be lower.", "messages[3] must be lower."),
        ("constraint.text is too long.", "b is too long."),
        ("constraint is not supported.", "a is not supported."),
        ("top_k has constraints.", "top_k has constraints."),
    ],
)
def test_a_request_may_have_further_names(message: str, said: str) -> None:
    assert str(refused(message, NAMES)) == said
    assert str(failed(f"invalid: {message}", NAMES)) == said


def test_the_prompt_of_a_chat_is_its_messages() -> None:
    assert refused("the prompt must have at least 1 token; got 0.", NAMES).param == "messages"


def test_a_deadline_that_has_passed_is_a_timeout_wherever_it_was_noticed() -> None:
    for error in (failed("timeout: canary"), ended(grpc.StatusCode.DEADLINE_EXCEEDED)):
        assert (error.status, error.code) == (504, "timeout")
        assert "canary" not in str(error)


def test_the_body_is_openais_error_object() -> None:
    error = ApiError(418, "no tea.", param="tea", code="teapot", headers={"allow": "coffee"})
    assert json.loads(error.body()) == {
        "error": {
            "message": "no tea.",
            "type": "invalid_request_error",
            "param": "tea",
            "code": "teapot",
        }
    }
    response = error.response()
    assert (response.status_code, response.headers["allow"]) == (418, "coffee")


def test_names_are_cut_only_where_they_are_long() -> None:
    assert shown("x" * 64) == "x" * 64
    assert shown("x" * 65) == "x" * 64 + "..."
