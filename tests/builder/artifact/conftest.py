"""A real artifact, and a copy of it that a test may spoil."""

import shutil
from pathlib import Path

import pytest

from builder.artifact.store import Artifact
from tests.built import compile_model
from tests.models import tiny_llama


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    return compile_model(model, tmp_path_factory.mktemp("built") / "artifact")


@pytest.fixture
def copy(built: Artifact, tmp_path: Path) -> Path:
    return shutil.copytree(built.root, tmp_path / "copy", copy_function=shutil.copyfile)
