"""A loaded model for a command: what is refused, and that it is closed in the end."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.cli.display import Silence
from builder.cli.main import main
from builder.cli.session import open_session
from builder.errors import ArtifactError
from tests.builder.cli.scripted_engine import Watched, generate
from tests.models import tiny_llama


def test_the_engine_is_closed_in_the_end(tiny_artifact: Path, executors: list[Watched]) -> None:
    with open_session(tiny_artifact, display=Silence()) as model:
        assert [executor.is_closed for executor in executors] == [False]
        assert model.executor is executors[0]
    assert executors[0].is_closed


def test_a_checkpoint_without_a_template_is_noted_at_compile_and_chat_is_refused(
    tmp_path: Path, executors: list[Watched]
) -> None:
    model = tiny_llama(tmp_path / "model")
    path = model / "tokenizer_config.json"
    fields = json.loads(path.read_text())
    del fields["chat_template"]
    path.write_text(json.dumps(fields))
    compiled = CliRunner().invoke(main, ["compile", str(model), "-o", str(tmp_path / "out")])
    assert "note: the model has no chat template" in compiled.stderr
    assert compiled.exit_code == 0
    refused = generate(tmp_path / "out", "hi", "--chat")
    assert refused.stderr.startswith(f"error: {tmp_path / 'out'} has no chat template")
    assert "chat_template.jinja" in refused.stderr
    assert refused.exit_code == 2
    assert executors[0].is_closed
    assert generate(tmp_path / "out", "hi", "--max-tokens", 3).exit_code == 0


def test_a_target_that_the_artifact_lacks_is_refused(tiny_artifact: Path) -> None:
    result = generate(tiny_artifact, "hi", "--target", "tensorrt")
    assert "target tensorrt is not implemented yet" in result.stderr
    assert result.exit_code == 2


def test_a_folder_that_is_no_artifact_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(ArtifactError, match="is not an artifact"),
        open_session(tmp_path, display=Silence()),
    ):
        pass
