"""The tokens that end an answer, gathered from every place that may name one.

Checkpoints name different end tokens in different files, and a model that misses one runs on into a
new turn. So the union counts, and each token remembers who named it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from builder.checkpoint.vocabulary import Vocabulary
from builder.errors import CheckpointError

TURN_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<|endoftext|>",
    "<end_of_turn>",
    "</s>",
)
"""Tokens that end a turn or a text wherever they are special tokens of a vocabulary."""


@dataclass(frozen=True, slots=True)
class EndToken:
    """A token that ends an answer, and is no part of its text."""

    id: int
    text: str | None
    """None for an id that the tokenizer has no token for."""
    sources: tuple[str, ...]
    """Who named it, such as `generation_config.json eos_token_id`."""


def find_end_tokens(
    vocabulary: Vocabulary, named: Iterable[tuple[str, Any]], vocab_size: int
) -> tuple[EndToken, ...]:
    """Unite the end tokens that files name with the known turn ends of the vocabulary, by ascending id.

    `named` holds (who, value), where the value is an id, a list of ids, a token, or None.

    Raises:
        CheckpointError: a value is neither, an id is not below `vocab_size`, or a token does not exist.
    """
    sources: dict[int, list[str]] = {}
    for who, value in named:
        for token_id in _ids(who, value, vocabulary):
            if not 0 <= token_id < vocab_size:
                raise CheckpointError(
                    f"{who} is {token_id}, outside the vocabulary of {vocab_size} tokens"
                )
            sources.setdefault(token_id, []).append(who)
    for token in TURN_ENDS:
        if token in vocabulary.specials:
            sources.setdefault(vocabulary.ids[token], []).append(f"known turn end {token}")
    return tuple(
        EndToken(token_id, vocabulary.text(token_id), tuple(sources[token_id]))
        for token_id in sorted(sources)
    )


def token_text(who: str, value: Any) -> str | None:
    """Give the text of a token as tokenizer_config.json writes it: null, a string, or an object.

    Raises:
        CheckpointError: it is something else.
    """
    text = value.get("content") if isinstance(value, Mapping) else value
    if text is not None and not isinstance(text, str):
        raise CheckpointError(f"{who} must be a token, not {type(text).__name__}")
    return text


def _ids(who: str, value: Any, vocabulary: Vocabulary) -> list[int]:
    """Turn what a file says into ids."""
    if value is None:
        return []
    if isinstance(value, str | Mapping):
        text = token_text(who, value)
        if text is None:
            return []
        if text not in vocabulary.ids:
            raise CheckpointError(f"{who} is {text!r}, which the tokenizer does not have")
        return [vocabulary.ids[text]]
    values = value if isinstance(value, list) else [value]
    if not all(type(one) is int for one in values):
        raise CheckpointError(f"{who} must be an id or a list of ids")
    return values
