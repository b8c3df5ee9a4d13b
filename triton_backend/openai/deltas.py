"""What the shim hears from the `forerun` face: news about answers, read from the tensors of responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tritonclient.grpc import InferResult

from triton_backend.openai.errors import cancelled, internal
from triton_backend.request import FinishReason, SamplingParams

TEXT_OUTPUTS = (
    "text",
    "finish_reason",
    "num_prompt_tokens",
    "num_generated_tokens",
    "num_cached_tokens",
    "choice",
)
TOLD = ("logprobs", "ranks", "top_ids", "top_bytes", "top_logprobs")
TOKEN_OUTPUTS = ("token_ids", "token_bytes", *TOLD)
PROMPT_OUTPUTS = tuple(f"prompt_{name}" for name in TOKEN_OUTPUTS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that stands, or could have stood, at a place of a prompt or an answer."""

    token_id: int = field(repr=False)
    data: bytes = field(repr=False)
    """The bytes of text that it stands for."""
    logprob: float


@dataclass(frozen=True, slots=True)
class ToldToken:
    """One token of a prompt or an answer, and what was likeliest at its place."""

    chosen: Candidate
    rank: int
    """Its place among all tokens, 1 for the likeliest."""
    top: tuple[Candidate, ...]
    """Likeliest first."""


@dataclass(frozen=True, slots=True)
class ToldPrompt:
    """The tokens of a prompt. Nothing stands before the first, so nothing says how likely it is."""

    first_id: int = field(repr=False)
    first_data: bytes = field(repr=False)
    others: tuple[ToldToken, ...] = field(repr=False)


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """News about one choice of an answer. The last one, and only that, has a `finish_reason`."""

    text: str = field(repr=False)
    finish_reason: FinishReason | None
    num_prompt_tokens: int
    num_generated_tokens: int
    """Tokens of the answer so far."""
    num_cached_tokens: int
    tokens: tuple[ToldToken, ...] = field(repr=False)
    """The new tokens, where logprobs were asked for."""
    choice: int = 0
    prompt: ToldPrompt | None = field(default=None, repr=False)
    """In the first news of choice 0, where the prompt's logprobs were asked for."""

    def without_answer(self) -> "AnswerDelta":
        """Give the same as of an answer of no tokens."""
        reason = self.finish_reason and FinishReason.LENGTH
        return replace(self, text="", tokens=(), num_generated_tokens=0, finish_reason=reason)


def outputs_of(params: SamplingParams) -> tuple[str, ...]:
    """Name the outputs that tell what was asked for."""
    names: tuple[str, ...] = TEXT_OUTPUTS
    if params.logprobs is not None:
        names += TOKEN_OUTPUTS
    if params.prompt_logprobs is not None:
        names += PROMPT_OUTPUTS
    return names


def read_delta(result: InferResult, params: SamplingParams) -> AnswerDelta:
    """Read a response.

    Raises:
        ApiError: it says that the answer was cancelled or failed.
    """
    reason = result.as_numpy("finish_reason")[0].decode()
    if reason == FinishReason.CANCELLED:
        raise cancelled()
    if reason == FinishReason.ERROR:
        raise internal()
    return AnswerDelta(
        text=result.as_numpy("text")[0].decode(),
        finish_reason=FinishReason(reason) if reason else None,
        num_prompt_tokens=int(result.as_numpy("num_prompt_tokens")[0]),
        num_generated_tokens=int(result.as_numpy("num_generated_tokens")[0]),
        num_cached_tokens=int(result.as_numpy("num_cached_tokens")[0]),
        tokens=() if params.logprobs is None else _tokens(*_columns(result, TOKEN_OUTPUTS)),
        choice=int(result.as_numpy("choice")[0]),
        prompt=None if params.prompt_logprobs is None else _prompt(result),
    )


def _prompt(result: InferResult) -> ToldPrompt | None:
    ids, data, *told = _columns(result, PROMPT_OUTPUTS)
    return ToldPrompt(ids[0], data[0], _tokens(ids[1:], data[1:], *told)) if ids else None


def _columns(result: InferResult, names: Sequence[str]) -> list[list[Any]]:
    return [result.as_numpy(name).tolist() for name in names]


def _tokens(
    ids: list[int],
    data: list[bytes],
    logprobs: list[float],
    ranks: list[int],
    *top_columns: list[Any],
) -> tuple[ToldToken, ...]:
    chosen = map(Candidate, ids, data, logprobs)
    top = list(map(Candidate, *top_columns))
    num_top = len(top) // max(len(ids), 1)  # fewer than asked for where the vocabulary is small
    return tuple(
        ToldToken(candidate, rank, tuple(top[place * num_top : (place + 1) * num_top]))
        for place, (candidate, rank) in enumerate(zip(chosen, ranks, strict=True))
    )
