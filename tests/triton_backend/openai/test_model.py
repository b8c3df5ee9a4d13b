"""What the shim reads of an artifact, and what it refuses."""

import json
import re
import shutil
from pathlib import Path

import pytest

from builder.errors import ArtifactError
from tests.built import compile_model
from tests.models import tiny_llama
from triton_backend.openai.model import open_model
from triton_backend.openai.settings import ServedModel


def opened(root: Path) -> object:
    return open_model(ServedModel("tiny", root), lambda: 0.0)


@pytest.fixture
def copied(artifact: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(artifact, tmp_path / "copy", copy_function=shutil.copyfile))


def test_a_model_knows_its_limits_and_its_artifact(artifact: Path) -> None:
    model = open_model(ServedModel("tiny", artifact), lambda: 0.0)
    manifest = json.loads((artifact / "artifact.json").read_text())
    assert model.name == "tiny"
    assert model.max_seq_len == manifest["limits"]["max_seq_len"]
    assert model.chat_template is not None


def test_another_artifact_has_another_fingerprint(artifact: Path, tmp_path: Path) -> None:
    other = compile_model(tiny_llama(tmp_path / "model", seed=1), tmp_path / "artifact").root
    fingerprints = {
        open_model(ServedModel("tiny", root), lambda: 0.0).fingerprint for root in (artifact, other)
    }
    assert len(fingerprints) == 2


@pytest.mark.parametrize("name", ["tokenizer.json", "chat_template.jinja"])
def test_an_altered_file_is_refused(name: str, copied: Path) -> None:
    path = copied / "tokenizer" / name
    path.write_text(path.read_text() + " ")
    with pytest.raises(ArtifactError, match=f"{re.escape(name)} is missing or was altered"):
        opened(copied)


def test_a_missing_file_is_refused(copied: Path) -> None:
    (copied / "tokenizer" / "tokenizer.json").unlink()
    with pytest.raises(ArtifactError, match=r"tokenizer\.json is missing"):
        opened(copied)


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="is not an artifact"):
        opened(tmp_path)
