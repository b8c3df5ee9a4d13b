"""What an artifact says about text: its tokenizer, and its chat template if it has one."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from builder.artifact.manifest import TokenizerRecord
from triton_backend.chat_template import ChatTemplate
from triton_backend.tokenizer import Tokenizer

TOKENIZER = "tokenizer/tokenizer.json"
CHAT_TEMPLATE = "tokenizer/chat_template.jinja"


def read_tokenizer(root: Path, record: TokenizerRecord) -> Tokenizer:
    """Load the tokenizer of the artifact at `root`, whose files were verified.

    Raises:
        CheckpointError: it can't be used.
        UnsupportedError: it asks for something not implemented.
    """
    content = (root / TOKENIZER).read_bytes()
    return Tokenizer(content, bos_token_id=record.bos_token_id, add_bos=False)


def compile_template(
    source: str, record: TokenizerRecord, tokenizer: Tokenizer, *, clock: Callable[[], datetime]
) -> ChatTemplate:
    """Compile a chat template for a tokenizer; `clock` gives the date that it may show.

    Raises:
        CheckpointError: it can't be used.
    """
    return ChatTemplate(
        source,
        special_tokens=record.named_tokens,
        control_strings=tokenizer.control_strings,
        clock=clock,
    )
