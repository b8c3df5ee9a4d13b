"""What an artifact's tokenizer folder holds: tokenizer.json, chat template, generation config, end tokens.

Prompts are encoded without the tokenizer's own additions; a completion then gets `prefix_ids` and
`suffix_ids` around it once, and a chat gets none, because its template writes them.
"""

from dataclasses import dataclass, field
from typing import Any

from builder.checkpoint.end_tokens import EndToken
from builder.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class TokenizerFiles:
    """Everything about text that a model needs when it serves."""

    tokenizer_json: bytes = field(repr=False)
    """For the tokenizers library; truncation and padding are off."""
    num_tokens: int
    """The largest id, plus one. Ids from here to the config's vocab_size are padding."""
    end_tokens: tuple[EndToken, ...] = ()
    """By ascending id."""
    named_tokens: dict[str, str] = field(default_factory=dict)
    """Tokens that a chat template may refer to by name, such as `bos_token`."""
    bos_token_id: int | None = None
    prefix_ids: tuple[int, ...] = ()
    """Ids that a completion prompt begins with."""
    suffix_ids: tuple[int, ...] = ()
    """Ids that a completion prompt ends with; empty for nearly all decoders."""
    chat_template: str | None = field(default=None, repr=False)
    generation_config: dict[str, Any] = field(default_factory=dict)

    def check_fits(self, vocab_size: int) -> None:
        """Check that each id has a row in the embedding table.

        Raises:
            CheckpointError: the tokenizer has ids that the model lacks.
        """
        if self.num_tokens > vocab_size:
            raise CheckpointError(
                f"the tokenizer has ids up to {self.num_tokens - 1}, but the config's vocab_size is "
                f"{vocab_size}; tokenizer and weights are of different models"
            )
