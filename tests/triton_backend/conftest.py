"""A tiny artifact for all tests of serving that load one, and a host without its process."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.built import compile_model
from tests.models import tiny_llama
from tests.triton_backend.host_stage import Stage


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
