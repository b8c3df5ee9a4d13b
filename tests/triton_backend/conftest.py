"""What several tests of the serving side share."""

import pytest

from builder.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from builder.checkpoint.sources.gguf_file import read_gguf
from builder.checkpoint.tokenizer_files import TokenizerFiles
from tests.models import smollm2_gguf
from triton_backend.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smollm2_files() -> TokenizerFiles:
    """The tokenizer files of the real SmolLM2."""
    return read_gguf_tokenizer(read_gguf(smollm2_gguf()).metadata)


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_files: TokenizerFiles) -> Tokenizer:
    return Tokenizer(smollm2_files.tokenizer_json, bos_token_id=None, add_bos=False)
