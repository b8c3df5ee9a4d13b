"""What the rest of the builder asks of a tokenizer.json: ids, special tokens, what encoding adds."""

from dataclasses import dataclass

from tokenizers import Tokenizer

from builder.errors import CheckpointError, UnsupportedError

PROBES = ("a", "b")
"""Any texts: what encoding puts around them is what completions begin and end with."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A loaded tokenizer.json."""

    tokenizer: Tokenizer
    ids: dict[str, int]
    """Id of every token, added ones included."""
    specials: frozenset[str]
    """Added tokens that are special: control tokens, never part of a text."""

    @property
    def num_tokens(self) -> int:
        """The largest id, plus one."""
        return max(self.ids.values(), default=-1) + 1

    def text(self, token_id: int) -> str | None:
        """Give the token of an id, or None when the id is padding."""
        token: str | None = self.tokenizer.id_to_token(token_id)
        return token

    def added_around_text(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Give the ids that the tokenizer itself adds before and after a text.

        Raises:
            UnsupportedError: it does something else than adding.
        """
        first, second = map(self._around, PROBES)
        if first is None or first != second:
            raise UnsupportedError(
                "the tokenizer's post_processor does more than add tokens around a text"
            )
        return first

    def _around(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        plain = self.tokenizer.encode(text, add_special_tokens=False).ids
        full = self.tokenizer.encode(text, add_special_tokens=True).ids
        for start in range(len(full)):
            if plain and full[start : start + len(plain)] == plain:
                return tuple(full[:start]), tuple(full[start + len(plain) :])
        return None


def read_vocabulary(tokenizer_json: bytes, what: str) -> Vocabulary:
    """Load a tokenizer.json; `what` names it in errors.

    Raises:
        CheckpointError: the tokenizers library can't load it, or it has no token at all.
    """
    try:
        tokenizer = Tokenizer.from_buffer(tokenizer_json)
        ids = tokenizer.get_vocab(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder().values()
    except Exception as error:  # the library raises nothing narrower
        raise CheckpointError(
            f"{what} can't be loaded by the tokenizers library: {error}"
        ) from error
    if not ids:
        raise CheckpointError(f"{what} has no tokens")
    return Vocabulary(tokenizer, ids, frozenset(token.content for token in added if token.special))


def without_cutting(tokenizer_json: bytes, vocabulary: Vocabulary) -> bytes:
    """Give the tokenizer.json with truncation and padding off; the same bytes where they are off already.

    Some checkpoints keep the settings of their training script, and would cut prompts silently.
    """
    tokenizer = vocabulary.tokenizer
    if tokenizer.truncation is None and tokenizer.padding is None:
        return tokenizer_json
    tokenizer.no_truncation()
    tokenizer.no_padding()
    text: str = tokenizer.to_str()
    return text.encode("utf-8")
