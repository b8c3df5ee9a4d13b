"""What several tests of serving share: the real tokenizer, a tiny artifact, a host without its process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from builder.checkpoint.sources.gguf_file import read_gguf
from builder.checkpoint.tokenizer_files import TokenizerFiles
from tests.built import compile_model
from tests.models import smollm2_gguf, tiny_llama
from tests.triton_backend.host_stage import Stage
from triton_backend.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def smollm2_files() -> TokenizerFiles:
    """The tokenizer files of the real SmolLM2."""
    return read_gguf_tokenizer(read_gguf(smollm2_gguf()).metadata)


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_files: TokenizerFiles) -> Tokenizer:
    return Tokenizer(smollm2_files.tokenizer_json, bos_token_id=None, add_bos=False)


@pytest.fixture(scope="session")
def tiny_artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Llama whose answers may be long: up to 16,384 tokens. Tests must not change it."""
    folder = tmp_path_factory.mktemp("tiny")
    model = tiny_llama(folder / "model", max_position_embeddings=16384)
    return compile_model(model, folder / "artifact").root


@pytest.fixture
def stage() -> Iterator[Stage]:
    """A host that has not loaded its engine."""
    made = Stage()
    yield made
    made.close()


@pytest.fixture
def served(stage: Stage) -> Stage:
    """A host that has."""
    stage.load()
    return stage
