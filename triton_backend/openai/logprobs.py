"""Tokens as OpenAI and vLLM show them: those of a prompt, and every generated one, also one that ended the answer."""

import codecs
from collections.abc import Sequence
from itertools import count

from triton_backend.openai.deltas import Candidate, ToldPrompt, ToldToken
from triton_backend.openai.replies import (
    ChatLogprobs,
    CompletionLogprobs,
    ContentLogprob,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from triton_backend.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for what JSON can't hold: minus infinity and NaN."""

_new_decoder = codecs.getincrementaldecoder("utf-8")


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[ToldToken]) -> ChatLogprobs:
    """Describe tokens of a chat's answer."""
    return ChatLogprobs([_content(tokenizer, token) for token in tokens])


def prompt_logprobs(tokenizer: Tokenizer, prompt: ToldPrompt, num_top: int) -> PromptLogprobs:
    """Describe the tokens of a prompt as vLLM does: each token itself, and the `num_top` likeliest in its place."""

    def place(token: ToldToken) -> dict[int, PromptLogprob]:
        ranked = [(token.chosen, token.rank), *zip(token.top[:num_top], count(1), strict=False)]
        return {
            each.token_id: PromptLogprob(_finite(each.logprob), rank, _decoded(tokenizer, each))
            for each, rank in ranked
        }

    return [None, *map(place, prompt.others)]


class CompletionColumns:
    """Describes the tokens of one completion, piece by piece."""

    def __init__(self, tokenizer: Tokenizer, num_top: int) -> None:
        """Begin at the first character of an answer; 0 `num_top` leaves out `top_logprobs`."""
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._decoder = _new_decoder("replace")
        self._offset = 0
        self._opens_text = False

    def describe_prompt(self, prompt: ToldPrompt) -> CompletionLogprobs:
        """Describe the tokens of the prompt, which an answer that echoes it begins with."""
        self._opens_text = True
        offset = self._advance(prompt.first_id, prompt.first_data)
        others = self.describe(prompt.others)
        # The answer's text begins anew: it does not complete a character that the prompt breaks off.
        self._decoder.reset()
        first = CompletionLogprobs(
            tokens=[_spelled(self._tokenizer, prompt.first_id, prompt.first_data)],
            token_logprobs=[None],
            top_logprobs=[None] if self._num_top else None,
            text_offset=[offset],
        )
        return joined(first, others)

    def describe(self, tokens: Sequence[ToldToken]) -> CompletionLogprobs:
        """Describe the next tokens."""
        chosen = [token.chosen for token in tokens]
        return CompletionLogprobs(
            tokens=[spelling(self._tokenizer, each) for each in chosen],
            token_logprobs=[_finite(each.logprob) for each in chosen],
            top_logprobs=[self._best(token) for token in tokens] if self._num_top else None,
            text_offset=[self._advance(each.token_id, each.data) for each in chosen],
        )

    def _best(self, token: ToldToken) -> dict[str, float]:
        """Give the likeliest tokens and the token itself by their spelling.

        Of those that are spelled alike the likeliest is shown, but for the token itself.
        """
        candidates = (*reversed(token.top[: self._num_top]), token.chosen)
        return {spelling(self._tokenizer, each): _finite(each.logprob) for each in candidates}

    def _advance(self, token_id: int, data: bytes) -> int:
        """Give the characters before a token with these bytes, and count its own."""
        offset = self._offset
        if self._opens_text and data:
            self._opens_text = False
            data = self._tokenizer.opening_bytes(token_id)
        self._offset += len(self._decoder.decode(data))
        return offset


def joined(first: CompletionLogprobs, second: CompletionLogprobs) -> CompletionLogprobs:
    """Put the columns of two pieces, both with or both without `top_logprobs`, under one another."""
    return CompletionLogprobs(
        tokens=first.tokens + second.tokens,
        token_logprobs=first.token_logprobs + second.token_logprobs,
        top_logprobs=first.top_logprobs and first.top_logprobs + (second.top_logprobs or []),
        text_offset=first.text_offset + second.text_offset,
    )


def spelling(tokenizer: Tokenizer, candidate: Candidate) -> str:
    """Spell a token: a control token by its name, a part of a character as OpenAI does."""
    return _spelled(tokenizer, candidate.token_id, candidate.data)


def _spelled(tokenizer: Tokenizer, token_id: int, data: bytes) -> str:
    control = tokenizer.control_string(token_id)
    if control is not None:
        return control
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def _decoded(tokenizer: Tokenizer, candidate: Candidate) -> str:
    """Spell a token as vLLM does: a part of a character is U+FFFD."""
    control = tokenizer.control_string(candidate.token_id)
    return candidate.data.decode("utf-8", "replace") if control is None else control


def _content(tokenizer: Tokenizer, token: ToldToken) -> ContentLogprob:
    top = [TopLogprob(*_described(tokenizer, each)) for each in token.top]
    return ContentLogprob(*_described(tokenizer, token.chosen), top_logprobs=top)


def _described(tokenizer: Tokenizer, candidate: Candidate) -> tuple[str, float, list[int] | None]:
    """Give spelling, logprob, and the bytes of text; None for a token that stands for no text."""
    is_control = tokenizer.control_string(candidate.token_id) is not None
    data = None if is_control else list(candidate.data)
    return spelling(tokenizer, candidate), _finite(candidate.logprob), data


def _finite(logprob: float) -> float:
    return max(LEAST_LOGPROB, logprob)  # NaN is never the larger one
