"""The `openai` package as it is, synchronous and asynchronous, against the shim."""

import asyncio
from typing import Any

import openai
import pytest

from tests.triton_backend.openai.conftest import MODEL
from tests.triton_backend.openai.fake_face import FakeFace
from tests.triton_backend.openai.scripts import failing

SAID = "Hello, world"


def test_a_chat(client: openai.OpenAI, chat: dict[str, Any]) -> None:
    answer = client.chat.completions.create(**chat)
    assert answer.choices[0].message.content == SAID
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.prompt_tokens_details.cached_tokens == 1


def test_a_streamed_chat(client: openai.OpenAI, chat: dict[str, Any]) -> None:
    options = {"include_usage": True}
    *chunks, last = client.chat.completions.create(**chat, stream=True, stream_options=options)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAID
    assert last.choices == []
    assert last.usage.total_tokens == 33


def test_the_stream_helper_puts_a_chat_together(
    client: openai.OpenAI, chat: dict[str, Any]
) -> None:
    with client.chat.completions.stream(**chat, logprobs=True) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == SAID
    assert len(final.choices[0].logprobs.content) == len(SAID)


def test_an_answer_goes_into_the_next_chat(client: openai.OpenAI, chat: dict[str, Any]) -> None:
    message = client.chat.completions.create(**chat).choices[0].message
    chat["messages"] += [message, {"role": "user", "content": "More"}]
    assert client.chat.completions.create(**chat).choices[0].message.content == SAID


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=["a", "b"], logprobs=2)
    assert [choice.text for choice in answer.choices] == [SAID, SAID]
    assert answer.choices[1].logprobs.tokens == list(SAID)


def test_streamed_completions(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    for chunk in client.completions.create(model=MODEL, prompt=[[65], [66, 67]], stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {0: SAID, 1: SAID}


def test_models(client: openai.OpenAI) -> None:
    (model,) = client.models.list()
    assert model == client.models.retrieve(MODEL)
    assert (model.id, model.owned_by) == (MODEL, "forerun")


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("invalid", openai.BadRequestError),
        ("unavailable", openai.InternalServerError),
        ("internal", openai.InternalServerError),
    ],
)
def test_a_failed_call_is_the_packages_own_exception(
    kind: str,
    error: type[openai.APIStatusError],
    client: openai.OpenAI,
    face: FakeFace,
    chat: dict[str, Any],
) -> None:
    face.script = failing(f"{kind}: temperature must be lower.")
    with pytest.raises(error):
        client.chat.completions.create(**chat)
    with pytest.raises(error):
        client.chat.completions.create(**chat, stream=True)


def test_a_failure_in_the_middle_of_a_stream_is_an_exception(
    client: openai.OpenAI, face: FakeFace, chat: dict[str, Any]
) -> None:
    face.script = failing("unavailable: x", after=("Hel", "lo"))
    stream = client.chat.completions.create(**chat, stream=True)
    heard = [next(stream).choices[0].delta.content for _ in range(3)]
    assert heard == ["", "Hel", "lo"]
    with pytest.raises(openai.APIError) as caught:
        next(stream)
    assert caught.value.code == "unavailable"


def test_the_package_tries_again_after_503(
    client: openai.OpenAI, face: FakeFace, chat: dict[str, Any]
) -> None:
    face.script = failing("unavailable: x")
    with pytest.raises(openai.InternalServerError):
        client.with_options(max_retries=1).chat.completions.create(**chat)
    assert len(face.asked) == 2


def test_many_asynchronous_chats_at_once(url: str, face: FakeFace, chat: dict[str, Any]) -> None:
    async def streamed(client: openai.AsyncOpenAI) -> str:
        text = ""
        async for chunk in await client.chat.completions.create(**chat, stream=True):
            text += chunk.choices[0].delta.content or ""
        return text

    async def whole(client: openai.AsyncOpenAI) -> str | None:
        return (await client.chat.completions.create(**chat)).choices[0].message.content

    async def all_of_them() -> list[str | None]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
            return await asyncio.gather(*[each(client) for each in [streamed, whole] * 10])

    assert asyncio.run(all_of_them()) == [SAID] * 20
