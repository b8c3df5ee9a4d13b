"""POST /v1/chat/completions: messages to one prompt of typed segments, deltas to pieces of a message."""

import asyncio
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from builder.errors import CheckpointError, RequestError
from triton_backend.openai.asks import Ask, segments_prompt
from triton_backend.openai.deltas import AnswerDelta
from triton_backend.openai.errors import SERVER, ApiError, refused, shown
from triton_backend.openai.logprobs import chat_logprobs, prompt_logprobs
from triton_backend.openai.model import Model
from triton_backend.openai.replies import (
    ChatChoice,
    ChatChunkChoice,
    ChatLogprobs,
    Message,
    MessageDelta,
    PromptLogprobs,
)
from triton_backend.openai.schema import ChatRequest

ROLES = ("system", "developer", "user", "assistant")
MESSAGE_FIELDS = ("role", "content", "name")
RENDER_ARGUMENTS = frozenset({"self", "messages", "tools", "add_generation_prompt"})


async def chat_ask(request: ChatRequest, model: Model) -> Ask:
    """Render a chat with the model's template, in a thread; the template's limits bound the time.

    Raises:
        ApiError: the model has no template, or the messages or parameters are refused.
    """
    if model.chat_template is None:
        text = "this model has no chat template; use /v1/completions."
        raise ApiError(400, text, param="model", code="unsupported_value")
    params = request.params
    if len(request.messages) > model.max_seq_len:
        # Each takes a token at least; rendering them first would cost seconds.
        raise refused(
            f"{len(request.messages)} messages can't fit max_seq_len {model.max_seq_len}."
        )
    messages = [_message(place, each, model) for place, each in enumerate(request.messages)]
    variables = request.chat_template_kwargs or {}
    for name in sorted(variables.keys() & RENDER_ARGUMENTS):
        text = f"chat_template_kwargs can't set {name}."
        raise ApiError(400, text, param="chat_template_kwargs", code="invalid_value")
    try:
        segments = await asyncio.to_thread(model.chat_template.render, messages, **variables)
    except RequestError as error:
        raise refused(str(error), request.names) from None
    except CheckpointError as error:
        raise ApiError(500, str(error), kind=SERVER, code="internal") from None
    return Ask(
        segments_prompt(segments),
        params,
        is_streamed=bool(request.stream),
        terms=request.terms,
        names=request.names,
    )


class ChatShape:
    """Shapes the answer of a chat."""

    id_prefix = "chatcmpl"
    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def __init__(self, model: Model, request: ChatRequest) -> None:
        """Shape answers of `model`."""
        self.model = model
        self._num_choices = request.num_choices
        self._has_logprobs = bool(request.logprobs)
        self._num_prompt_logprobs = request.prompt_logprobs

    def opening(self) -> list[ChatChunkChoice]:
        """Give what a stream begins with: the role, of each answer."""
        role = MessageDelta(role="assistant", content="")
        return [ChatChunkChoice(index, role) for index in range(self._num_choices)]

    def pieces(self, index: int, delta: AnswerDelta) -> Iterator[ChatChunkChoice]:
        """Give the news of a delta: its text, then the end."""
        if delta.text or delta.tokens:
            content = MessageDelta(content=delta.text)
            yield ChatChunkChoice(index, content, self._logprobs(delta))
        if delta.finish_reason is not None:
            yield ChatChunkChoice(index, MessageDelta(), finish_reason=delta.finish_reason)

    def whole(self, index: int, delta: AnswerDelta) -> ChatChoice:
        """Give an answer that came in one delta."""
        return ChatChoice(
            index=index,
            message=Message(delta.text),
            logprobs=self._logprobs(delta),
            finish_reason=str(delta.finish_reason),
        )

    def prompt_logprobs(self, delta: AnswerDelta) -> PromptLogprobs | UnsetType:
        """Describe the prompt, if asked for."""
        if self._num_prompt_logprobs is None or delta.prompt is None:
            return UNSET
        return prompt_logprobs(self.model.tokenizer, delta.prompt, self._num_prompt_logprobs)

    def _logprobs(self, delta: AnswerDelta) -> ChatLogprobs | None:
        return chat_logprobs(self.model.tokenizer, delta.tokens) if self._has_logprobs else None


def _message(place: int, message: dict[str, Any], model: Model) -> dict[str, Any]:
    """Check the fields of a message, and give it as templates know it."""
    # Clients send back the answers they got, empty fields included.
    kept = {name: value for name, value in message.items() if value is not None and value != []}
    for name in kept:
        if name not in MESSAGE_FIELDS:
            param = f"messages[{place}].{shown(name)}"
            text = f"{param} is not supported; allowed are {', '.join(MESSAGE_FIELDS)}."
            raise ApiError(400, text, param=param, code="unsupported_parameter")
    if kept.get("role") not in ROLES:
        param = f"messages[{place}].role"
        text = f"{param} must be one of {', '.join(ROLES)}."
        raise ApiError(400, text, param=param, code="invalid_value")
    if kept["role"] == "developer" and not model.has_developer_role:
        kept["role"] = "system"
    return kept
