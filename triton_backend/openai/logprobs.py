"""Tokens of answers as OpenAI shows them: every generated one, also one that ended the answer."""

import codecs
from collections.abc import Sequence

from triton_backend.openai.face import AnswerToken, Candidate
from triton_backend.openai.replies import (
    ChatLogprobs,
    CompletionLogprobs,
    ContentLogprob,
    TopLogprob,
)
from triton_backend.tokenizer import Tokenizer

LEAST_LOGPROB = -9999.0
"""Stands for what JSON can't hold: minus infinity and NaN."""

_new_decoder = codecs.getincrementaldecoder("utf-8")


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[AnswerToken]) -> ChatLogprobs:
    """Describe tokens of a chat's answer."""
    return ChatLogprobs([_content(tokenizer, token) for token in tokens])


class CompletionColumns:
    """Describes the tokens of one completion, piece by piece."""

    def __init__(self, tokenizer: Tokenizer, num_top: int) -> None:
        """Begin at the first character of an answer; 0 `num_top` leaves out `top_logprobs`."""
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._decoder = _new_decoder("replace")
        self._offset = 0

    def describe(self, tokens: Sequence[AnswerToken]) -> CompletionLogprobs:
        """Describe the next tokens."""
        chosen = [token.chosen for token in tokens]
        return CompletionLogprobs(
            tokens=[spelling(self._tokenizer, each) for each in chosen],
            token_logprobs=[_finite(each.logprob) for each in chosen],
            top_logprobs=[self._best(token) for token in tokens] if self._num_top else None,
            text_offset=[self._advance(each.data) for each in chosen],
        )

    def _best(self, token: AnswerToken) -> dict[str, float]:
        """Give the likeliest tokens and the token itself by their spelling.

        Of those that are spelled alike the likeliest is shown, but for the token itself.
        """
        candidates = (*reversed(token.top), token.chosen)
        return {spelling(self._tokenizer, each): _finite(each.logprob) for each in candidates}

    def _advance(self, data: bytes) -> int:
        """Give the characters before a token with these bytes, and count its own."""
        offset = self._offset
        self._offset += len(self._decoder.decode(data))
        return offset


def spelling(tokenizer: Tokenizer, candidate: Candidate) -> str:
    """Spell a token: a control token by its name, a part of a character as OpenAI does."""
    control = tokenizer.control_string(candidate.token_id)
    if control is not None:
        return control
    try:
        return candidate.data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in candidate.data)


def _content(tokenizer: Tokenizer, token: AnswerToken) -> ContentLogprob:
    top = [TopLogprob(*_described(tokenizer, each)) for each in token.top]
    return ContentLogprob(*_described(tokenizer, token.chosen), top_logprobs=top)


def _described(tokenizer: Tokenizer, candidate: Candidate) -> tuple[str, float, list[int] | None]:
    """Give spelling, logprob, and the bytes of text; None for a token that stands for no text."""
    is_control = tokenizer.control_string(candidate.token_id) is not None
    data = None if is_control else list(candidate.data)
    return spelling(tokenizer, candidate), _finite(candidate.logprob), data


def _finite(logprob: float) -> float:
    return max(LEAST_LOGPROB, logprob)  # NaN is never the larger one
