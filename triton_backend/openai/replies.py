"""What clients hear back: the objects of OpenAI's chats and completions, whole and in chunks."""

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from triton_backend.openai.deltas import AnswerDelta


class TopLogprob(msgspec.Struct, frozen=True):
    """A token that could have stood at a place of the answer."""

    token: str
    logprob: float
    bytes: list[int] | None


class ContentLogprob(msgspec.Struct, frozen=True):
    """A token of an answer."""

    token: str
    logprob: float
    bytes: list[int] | None
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """The tokens of a chat's answer, or of a piece of it."""

    content: list[ContentLogprob]
    refusal: None = None


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """The tokens of a completion, or of a piece of it, in columns."""

    tokens: list[str]
    token_logprobs: list[float | None]
    """None for the first token of a prompt, which nothing stands before."""
    top_logprobs: list[dict[str, float] | None] | None
    text_offset: list[int]


class PromptLogprob(msgspec.Struct, frozen=True):
    """A token that stands, or could have stood, at a place of the prompt; vLLM's shape."""

    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""By token id, for each token of a prompt; None for the first."""


class Message(msgspec.Struct, frozen=True):
    """The answer of a chat."""

    content: str
    role: Literal["assistant"] = "assistant"
    refusal: None = None


class MessageDelta(msgspec.Struct, frozen=True):
    """A piece of the answer of a chat."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET


class ChatChoice(msgspec.Struct, frozen=True):
    """One answer of a chat."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: str


class ChatChunkChoice(msgspec.Struct, frozen=True):
    """News about one answer of a chat."""

    index: int
    delta: MessageDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None


class CompletionChoice(msgspec.Struct, frozen=True):
    """One completion, or news about it."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: str | None = None
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Which tokens of the prompts were not computed anew."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of all prompts and all answers of a request."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer or a chunk of one."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str
    choices: Sequence[Any]
    usage: Usage | UnsetType | None = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    """Of a chat; completions have them in their choices."""


class ModelCard(msgspec.Struct, frozen=True):
    """A model that can be asked."""

    id: str
    created: int
    max_model_len: int
    """Beyond OpenAI: tokens of prompt and answer together."""
    object: Literal["model"] = "model"
    owned_by: str = "forerun"


class ModelList(msgspec.Struct, frozen=True):
    """All models that can be asked."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


def usage_of(finals: Sequence[AnswerDelta]) -> Usage:
    """Add up the tokens of all answers, given the last delta of each."""
    # Choices of one prompt share it.
    firsts = [final for final in finals if final.choice == 0]
    prompt_tokens = sum(final.num_prompt_tokens for final in firsts)
    completion_tokens = sum(final.num_generated_tokens for final in finals)
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(sum(final.num_cached_tokens for final in firsts)),
    )
