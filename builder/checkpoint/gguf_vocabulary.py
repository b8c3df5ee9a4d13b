"""The tokens of a GGUF file: texts, types and scores, checked against each other."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from builder.checkpoint.end_tokens import TURN_ENDS
from builder.errors import CheckpointError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """Tokens by id."""

    texts: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]

    def is_special(self, token_id: int) -> bool:
        """Say whether a token is control, never part of a text.

        Some files type a turn end as normal; llama.cpp and we know better.
        """
        return self.types[token_id] in (CONTROL, UNKNOWN) or self.texts[token_id] in TURN_ENDS

    def added_tokens(self) -> list[dict[str, Any]]:
        """Give tokenizer.json's added_tokens: those found in a text before anything else happens to it."""
        return [
            {
                "id": token_id,
                "content": text,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": self.is_special(token_id),
            }
            for token_id, text in enumerate(self.texts)
            if self.is_special(token_id) or self.types[token_id] == USER_DEFINED
        ]


def read_gguf_vocabulary(metadata: Mapping[str, Any]) -> GgufVocabulary:
    """Read the tokens of a GGUF file.

    Raises:
        CheckpointError: a list is missing, of the wrong kind or length, or a token appears twice.
    """
    texts = _list(metadata, "tokens", str)
    # Empty tokens occur in padded vocabularies; llama.cpp names them so.
    named = tuple(text or f"[EMPTY_{token_id}]" for token_id, text in enumerate(texts))
    if len(set(named)) < len(named):
        seen: set[str] = set()
        twice = next(text for text in named if text in seen or seen.add(text))  # type: ignore[func-returns-value]
        raise CheckpointError(f"tokenizer.ggml.tokens has {twice!r} twice")
    types = _list(metadata, "token_type", int) or [NORMAL] * len(texts)
    scores = _list(metadata, "scores", float) or [0.0] * len(texts)
    for name, values in (("token_type", types), ("scores", scores)):
        if len(values) != len(texts):
            raise CheckpointError(
                f"tokenizer.ggml.{name} has {len(values)} entries for {len(texts)} tokens"
            )
    return GgufVocabulary(named, tuple(types), tuple(scores))


def _list(metadata: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    """Give a list of metadata whose elements all have one type; absent is empty."""
    values = metadata.get(f"tokenizer.ggml.{name}", [])
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise CheckpointError(f"tokenizer.ggml.{name} must be a list of {kind.__name__}")
    return values
