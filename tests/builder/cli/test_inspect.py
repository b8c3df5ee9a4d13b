"""`builder inspect` on a folder that was written without compiling."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builder.artifact import manifest as manifests
from builder.cli.main import main

TABLE = """\
{folder}
  model          llama: 2 layers, hidden 64, 4 heads over 2 KV heads of 16, vocabulary 259
  source         org/tiny (hub, revision 0123abcd), 1 files
  limits         64 tokens a sequence, 4 sequences and 32 tokens a step
  KV cache       float32, 512 B a token, 512 tokens in blocks of 16, 270 kB in all
  engine         portable rank 0: asked int8, is 1 x float32, 2 x int8; \
engines/portable/rank0.onnx + weights/rank0.safetensors
  arithmetic     int8 weights are widened to float32 in blocks
  tokenizer      259 tokens
  added ids      1 before a completion, none after
  end token      256 <|endoftext|> (generation_config.json)
  end token      258 <|im_end|> (config.json, tokenizer_config.json)
  chat template  present
  files          3, 5.01 kB
  made by        forerun 0.1.0; numpy 1.26.4, onnx 1.21.0
  quality gate   none
"""


def inspect(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["inspect", *map(str, arguments)])


def test_the_table_says_what_the_artifact_is(artifact_folder: Path) -> None:
    result = inspect(artifact_folder)
    assert result.stdout == TABLE.format(folder=artifact_folder)
    assert result.stderr == ""
    assert result.exit_code == 0


def test_json_is_the_stored_manifest_byte_for_byte(artifact_folder: Path) -> None:
    result = inspect(artifact_folder, "--json")
    stored = (artifact_folder / manifests.FILE_NAME).read_bytes()
    assert result.stdout_bytes == stored
    assert manifests.encode(manifests.decode(result.stdout_bytes)) == stored
    assert json.loads(result.stdout)["tokenizer"]["end_tokens"][0]["id"] == 256
    assert result.exit_code == 0


def test_verify_says_on_stderr_that_every_file_is_intact(artifact_folder: Path) -> None:
    result = inspect(artifact_folder, "--verify", "--json")
    assert result.stdout_bytes == (artifact_folder / manifests.FILE_NAME).read_bytes()
    assert result.stderr.endswith("verified: 3 files, 5.01 kB\n")
    assert result.exit_code == 0


def test_verify_refuses_an_altered_file_by_name(artifact_folder: Path) -> None:
    (artifact_folder / "weights/rank0.safetensors").unlink()
    (artifact_folder / "weights/rank0.safetensors").write_bytes(b"v" * 5000)
    assert inspect(artifact_folder).exit_code == 0
    result = inspect(artifact_folder, "--verify")
    assert "weights/rank0.safetensors" in result.stderr
    assert "was altered" in result.stderr
    assert result.stdout == ""
    assert result.exit_code == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{}", "has schema none"),
        (b'{"schema": 99}', "has schema 99, this version of Forerun reads schema 3"),
        (b"{", "can't be read"),
        (b'{"schema": 3}', "can't be read"),
        (b"[" * 100_000, "can't be read"),
    ],
    ids=["no schema", "later schema", "no JSON", "missing fields", "deep nesting"],
)
def test_a_manifest_that_can_not_be_read_is_one_line(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / manifests.FILE_NAME).write_bytes(content)
    result = inspect(tmp_path, "--json")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
    assert result.exit_code == 2


def test_a_folder_without_a_manifest_is_no_artifact(tmp_path: Path) -> None:
    result = inspect(tmp_path)
    assert result.stderr.startswith(f"error: {tmp_path} is not an artifact: ")
    assert result.exit_code == 2


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    result = inspect(tmp_path / "none")
    assert result.stderr.startswith(f"error: there is no artifact at {tmp_path / 'none'}")
    assert result.exit_code == 2
