"""Messages to a prompt, with templates of many kinds."""

import asyncio
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tritonclient.utils import deserialize_bytes_tensor

from triton_backend.chat_template import ChatTemplate
from triton_backend.openai.chat import chat_ask
from triton_backend.openai.errors import ApiError
from triton_backend.openai.model import Model, open_model
from triton_backend.openai.schema import ChatRequest
from triton_backend.openai.settings import ServedModel

CANARY = "canary-Zb3"


@pytest.fixture(scope="module")
def model(artifact: Path) -> Model:
    return open_model(ServedModel("tiny", artifact), lambda: 0.0)


def with_template(model: Model, source: str) -> Model:
    template = ChatTemplate(
        source, special_tokens={}, control_strings=["<|im_start|>"], clock=datetime.now
    )
    return replace(model, chat_template=template, has_developer_role="developer" in source)


def rendered(model: Model, *messages: dict[str, Any], **fields: Any) -> str:
    request = ChatRequest(model="tiny", messages=list(messages), **fields)
    texts, _ = asyncio.run(chat_ask(request, model)).prompt
    return b"".join(deserialize_bytes_tensor(texts._get_content())).decode()


def user(content: Any = CANARY) -> dict[str, Any]:
    return {"role": "user", "content": content}


def refusal(model: Model, *messages: dict[str, Any], **fields: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        rendered(model, *messages, **fields)
    assert CANARY not in str(caught.value)
    return caught.value


def test_a_model_without_a_template_refuses_chats(model: Model) -> None:
    error = refusal(replace(model, chat_template=None), user())
    assert (error.status, error.param) == (400, "model")
    assert "/v1/completions" in str(error)


def test_what_a_template_refuses_is_the_clients_fault(model: Model) -> None:
    refusing = with_template(model, "{{ raise_exception('no ' + messages[0].content) }}")
    assert refusal(refusing, user()).status == 400


def test_a_template_that_reaches_too_far_is_not_the_clients_fault(model: Model) -> None:
    reaching = with_template(model, "{{ '%s' % messages[0].content }}")
    assert refusal(reaching, user()).status == 500


def test_an_endless_template_ends_at_its_limit(model: Model) -> None:
    endless = "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}"
    error = refusal(with_template(model, endless), user())
    assert (error.status, "over its limit" in str(error)) == (400, True)


def test_variables_reach_the_template(model: Model) -> None:
    thinking = with_template(
        model, "{% if enable_thinking %}think{% endif %}{{ messages[0].role }}"
    )
    assert rendered(thinking, user()) == "user"
    variables = {"enable_thinking": True}
    assert rendered(thinking, user(), chat_template_kwargs=variables) == "thinkuser"


def test_unknown_variables_are_refused(model: Model) -> None:
    assert refusal(model, user(), chat_template_kwargs={"colour": CANARY}).status == 400


@pytest.mark.parametrize("name", ["self", "messages", "tools", "add_generation_prompt"])
def test_variables_cant_replace_the_chat_itself(name: str, model: Model) -> None:
    error = refusal(model, user(), chat_template_kwargs={name: CANARY})
    assert (error.param, error.code) == ("chat_template_kwargs", "invalid_value")


def test_a_developer_stays_one_where_the_template_knows_it(model: Model) -> None:
    source = "{{ messages[0].role }}{# developer #}"
    developer = {"role": "developer", "content": "Hi"}
    assert rendered(with_template(model, source), developer) == "developer"
    assert rendered(with_template(model, "{{ messages[0].role }}"), developer) == "system"


def test_the_name_of_an_author_reaches_the_template(model: Model) -> None:
    named = with_template(model, "{{ messages[0].name }}: {{ messages[0].content }}")
    assert rendered(named, {**user("Hi"), "name": "Ann"}) == "Ann: Hi"
