"""A golden table of bad requests: status, param and code of the error object for each."""

from typing import Any

import httpx
import pytest

from tests.triton_backend.openai.conftest import MODEL
from tests.triton_backend.openai.fake_face import FakeFace

CANARY = "canary-Zb3"
JSON = {"content-type": "application/json"}
CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
UNSUPPORTED, UNKNOWN = "unsupported_parameter", "unknown_parameter"
MISSING, TYPE, VALUE = "missing_required_parameter", "invalid_type", "invalid_value"
DROP = object()
USER = {"role": "user", "content": CANARY}
IMAGE = {"type": "image_url", "image_url": {"url": CANARY}}
TOOL = {"type": "function", "function": {"name": CANARY}}

# What is changed in a good chat, then param and code; the status is 400.
CHAT_ROWS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"model": DROP}, "model", MISSING),
    ({"model": 7}, "model", TYPE),
    ({"model": None}, "model", TYPE),
    ({"messages": DROP}, "messages", MISSING),
    ({"messages": CANARY}, "messages", TYPE),
    ({"messages": []}, "messages", VALUE),
    ({"messages": [CANARY]}, "messages[0]", TYPE),
    ({"messages": [{"content": CANARY}]}, "messages[0].role", VALUE),
    ({"messages": [USER, {"role": CANARY, "content": "x"}]}, "messages[1].role", VALUE),
    ({"messages": [{"role": "tool", "content": CANARY}]}, "messages[0].role", VALUE),
    ({"messages": [{"role": "user"}]}, "messages[0].content", VALUE),
    ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", VALUE),
    ({"messages": [{"role": "user", "content": [IMAGE]}]}, "messages[0].content[0]", VALUE),
    ({"messages": [USER | {"tool_calls": [TOOL]}]}, "messages[0].tool_calls", UNSUPPORTED),
    ({"messages": [USER | {"weight": 1}]}, "messages[0].weight", UNSUPPORTED),
    ({"colour": CANARY}, "colour", UNKNOWN),
    ({"prompt": CANARY}, "prompt", UNSUPPORTED),
    ({"n": 0}, "n", VALUE),
    ({"n": 129}, "n", VALUE),
    ({"n": True}, "n", TYPE),
    ({"tools": [TOOL]}, "tools", UNSUPPORTED),
    ({"tool_choice": "required"}, "tool_choice", UNSUPPORTED),
    ({"response_format": CANARY}, "response_format", TYPE),
    ({"response_format": {"type": CANARY}}, "response_format.type", VALUE),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", MISSING),
    (
        {"response_format": {"type": "json_schema", "json_schema": {"name": CANARY}}},
        "response_format.json_schema.schema",
        MISSING,
    ),
    ({"response_format": {"type": "json_object", "x": CANARY}}, "response_format", UNKNOWN),
    ({"structured_outputs": CANARY}, "structured_outputs", TYPE),
    ({"structured_outputs": {"regex": 7}}, "structured_outputs.regex", VALUE),
    ({"structured_outputs": {"choice": [7]}}, "structured_outputs.choice", VALUE),
    ({"structured_outputs": {"json": [CANARY]}}, "structured_outputs.json", VALUE),
    ({"structured_outputs": {"json_object": 1}}, "structured_outputs.json_object", VALUE),
    ({"structured_outputs": {"regex": CANARY, "grammar": CANARY}}, "structured_outputs", VALUE),
    ({"structured_outputs": {"structural_tag": CANARY}}, "structured_outputs", VALUE),
    (
        {
            "structured_outputs": {"regex": CANARY},
            "response_format": {"type": "json_object"},
        },
        "structured_outputs",
        VALUE,
    ),
    ({"logit_bias": {CANARY: 1}}, "logit_bias", VALUE),
    ({"logit_bias": {"5": 101}}, "logit_bias[...]", VALUE),
    ({"logit_bias": {"5": 1, "05": 1}}, "logit_bias", VALUE),
    ({"logit_bias": {"9999999999": 1}}, None, VALUE),
    ({"frequency_penalty": 2.5}, "frequency_penalty", VALUE),
    ({"presence_penalty": "much"}, "presence_penalty", TYPE),
    ({"repetition_penalty": 0}, "repetition_penalty", VALUE),
    ({"min_p": 2}, "min_p", VALUE),
    ({"bad_words": CANARY}, "bad_words", TYPE),
    ({"priority": 1.5}, "priority", TYPE),
    ({"cache_salt": ""}, "cache_salt", VALUE),
    ({"cache_salt": "x" * 257}, "cache_salt", VALUE),
    ({"no_store": True}, "no_store", UNKNOWN),
    ({"audio": {"voice": "alloy", "format": "wav"}}, "audio", UNSUPPORTED),
    ({"store": True}, "store", UNSUPPORTED),
    ({"reasoning_effort": "low"}, "reasoning_effort", UNSUPPORTED),
    ({"chat_template": CANARY}, "chat_template", UNSUPPORTED),
    ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs", VALUE),
    ({"chat_template_kwargs": {"colour": CANARY}}, None, VALUE),
    ({"temperature": 2.5}, "temperature", VALUE),
    ({"temperature": -0.1}, "temperature", VALUE),
    ({"temperature": "hot"}, "temperature", TYPE),
    ({"top_p": 1.5}, "top_p", VALUE),
    ({"max_tokens": 0}, "max_tokens", VALUE),
    ({"max_tokens": 1.5}, "max_tokens", TYPE),
    ({"max_tokens": 2**31}, "max_tokens", VALUE),
    ({"max_completion_tokens": -1}, "max_completion_tokens", VALUE),
    ({"min_tokens": 3, "max_tokens": 2}, "min_tokens", VALUE),
    ({"seed": 2**63}, "seed", VALUE),
    ({"stop": 7}, "stop", TYPE),
    ({"stop": ["a", 7]}, "stop[1]", TYPE),
    ({"stop": ""}, "stop[0]", VALUE),
    ({"stop": ["a"] * 17}, "stop", VALUE),
    ({"stop_token_ids": [-1]}, "stop_token_ids[0]", VALUE),
    ({"logprobs": 1}, "logprobs", TYPE),
    ({"echo": True}, "echo", UNSUPPORTED),
    ({"prompt_logprobs": 21}, "prompt_logprobs", VALUE),
    ({"prompt_logprobs": 0, "stream": True}, "prompt_logprobs", VALUE),
    ({"top_logprobs": 3}, "top_logprobs", VALUE),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", VALUE),
    ({"stream": "yes"}, "stream", TYPE),
    ({"stream_options": {"include_usage": True}}, "stream_options", VALUE),
    ({"stream": True, "stream_options": {CANARY: 1}}, "stream_options", UNKNOWN),
    ({"metadata": {"a": 1}}, "metadata[...]", TYPE),
]

# The same for a good completions request.
COMPLETION_ROWS: list[tuple[dict[str, Any], str | None, str]] = [
    ({"prompt": DROP}, "prompt", MISSING),
    ({"prompt": None}, "prompt", TYPE),
    ({"prompt": []}, "prompt", VALUE),
    ({"prompt": ["x"] * 65}, "prompt", VALUE),
    ({"prompt": ["x", 7]}, "prompt[1]", TYPE),
    ({"prompt": [7, "x"]}, "prompt[1]", TYPE),
    ({"prompt": [-1]}, "prompt[0]", VALUE),
    ({"prompt": [[1], []]}, "prompt[1]", VALUE),
    ({"prompt": [{}]}, "prompt[0]", TYPE),
    ({"suffix": CANARY}, "suffix", UNSUPPORTED),
    ({"echo": "yes"}, "echo", TYPE),
    ({"max_tokens": 0}, "max_tokens", VALUE),
    ({"max_tokens": -1}, "max_tokens", VALUE),
    ({"max_tokens": 0, "echo": True, "min_tokens": 1}, "min_tokens", VALUE),
    ({"best_of": 2}, "best_of", UNSUPPORTED),
    ({"logprobs": 6}, "logprobs", VALUE),
    ({"logprobs": True}, "logprobs", TYPE),
    ({"messages": []}, "messages", UNSUPPORTED),
    ({"max_completion_tokens": 5}, "max_completion_tokens", UNSUPPORTED),
]

# Bytes that are no request at all.
RAW_ROWS = [
    b"",
    b"{",
    b'{"model": "tiny"} x',
    b'{"temperature": NaN}',
    b'{"temperature": 1e999}',
    b'{"user": "\xff"}',
    b'{"user": "\\ud800"}',
    b"[" * 100_000,
]


def assert_error(
    response: httpx.Response, status: int, *, param: str | None = None, code: str
) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    error = response.json()["error"]
    message = error.pop("message")
    kind = "invalid_request_error" if status < 500 else "server_error"
    assert error == {"type": kind, "param": param, "code": code}
    assert 0 < len(message) < 1200
    assert "\n" not in message
    assert not message.startswith(" ")


def changed(good: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in (good | change).items() if value is not DROP}


@pytest.mark.parametrize(("change", "param", "code"), CHAT_ROWS)
def test_a_bad_chat_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], param: str | None, code: str, http: httpx.Client, face: FakeFace
) -> None:
    body = changed({"model": MODEL, "messages": [USER]}, change)
    response = http.post(CHATS, json=body)
    assert_error(response, 400, param=param, code=code)
    assert face.asked == []


@pytest.mark.parametrize(("change", "param", "code"), COMPLETION_ROWS)
def test_a_bad_completion_is_refused_by_the_name_of_its_field(
    change: dict[str, Any], param: str | None, code: str, http: httpx.Client, face: FakeFace
) -> None:
    body = changed({"model": MODEL, "prompt": CANARY}, change)
    response = http.post(COMPLETIONS, json=body)
    assert_error(response, 400, param=param, code=code)
    assert face.asked == []


@pytest.mark.parametrize("change", [change for change, _, code in CHAT_ROWS if code != UNKNOWN])
def test_no_refusal_repeats_what_a_chat_says(change: dict[str, Any], http: httpx.Client) -> None:
    response = http.post(CHATS, json=changed({"model": MODEL, "messages": [USER]}, change))
    assert CANARY not in response.text


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS])
@pytest.mark.parametrize("body", RAW_ROWS)
def test_bytes_that_are_no_json_are_refused(body: bytes, path: str, http: httpx.Client) -> None:
    response = http.post(path, content=body, headers=JSON)
    assert_error(response, 400, code="invalid_json")


def test_json_that_is_no_object_is_refused(http: httpx.Client) -> None:
    assert_error(http.post(CHATS, json=[CANARY]), 400, code="invalid_type")


@pytest.mark.parametrize("path", [CHATS, COMPLETIONS])
def test_an_unknown_model_is_not_found(path: str, http: httpx.Client) -> None:
    body = (
        {"model": "other", "messages": [USER]}
        if path == CHATS
        else {"model": "other", "prompt": "x"}
    )
    assert_error(http.post(path, json=body), 404, param="model", code="model_not_found")


def test_a_body_larger_than_the_limit_is_refused(http: httpx.Client) -> None:
    body = b'{"user": "' + b"x" * 100_000 + b'"}'
    assert_error(http.post(CHATS, content=body, headers=JSON), 413, code="request_too_large")


def test_a_body_of_exactly_the_limit_is_read(http: httpx.Client) -> None:
    body = b'{"user": "' + b"x" * (100_000 - 12) + b'"}'
    assert len(body) == 100_000
    assert_error(http.post(CHATS, content=body, headers=JSON), 400, param="model", code=MISSING)


def test_a_body_that_comes_in_chunks_is_measured_too(http: httpx.Client) -> None:
    chunks = (b"x" * 60_000 for _ in range(3))
    assert_error(http.post(CHATS, content=chunks, headers=JSON), 413, code="request_too_large")


@pytest.mark.parametrize("declared", ["text/plain", "application/x-www-form-urlencoded", ""])
def test_a_body_that_is_not_declared_as_json_is_refused(declared: str, http: httpx.Client) -> None:
    response = http.post(CHATS, content=b"{}", headers={"content-type": declared})
    assert_error(response, 415, code="unsupported_media_type")


def test_json_may_be_declared_with_its_encoding(http: httpx.Client, chat: dict[str, Any]) -> None:
    request = http.build_request("POST", CHATS, json=chat)
    request.headers["content-type"] = "Application/JSON; charset=utf-8"
    assert http.send(request).status_code == 200


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/embeddings", f"{CHATS}/", "/health", "/metrics"])
def test_a_path_that_is_no_route_is_not_found(path: str, http: httpx.Client) -> None:
    assert_error(http.get(path), 404, code="not_found")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHATS, {"POST"}),
        ("PUT", COMPLETIONS, {"POST"}),
        ("OPTIONS", CHATS, {"POST"}),
        ("POST", "/v1/models", {"GET", "HEAD"}),
        ("DELETE", "/v1/models/tiny", {"GET", "HEAD"}),
        ("POST", "/health/ready", {"GET", "HEAD"}),
    ],
)
def test_a_method_that_a_route_has_not_is_refused(
    method: str, path: str, allowed: set[str], http: httpx.Client
) -> None:
    response = http.request(method, path)
    assert_error(response, 405, code="method_not_allowed")
    assert set(response.headers["allow"].split(", ")) == allowed


def test_no_answer_permits_pages_of_other_origins(http: httpx.Client, chat: dict[str, Any]) -> None:
    response = http.post(CHATS, json=chat, headers={"origin": "https://elsewhere.example"})
    assert not [name for name in response.headers if name.startswith("access-control")]
