"""What is wrong in a config.pbtxt is named by file, line and key."""

from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.launcher.config_file import ConfigFile, format_config, read_config

TEXT = """\
name: "tiny"
backend: "python"
max_batch_size: 0
input {
  name: "text"
  data_type: TYPE_STRING
  dims: 1
}
parameters {
  key: "artifact"
  value {
    string_value: "/somewhere"
  }
}
"""


def written(folder: Path, text: str) -> Path:
    (folder / "config.pbtxt").write_text(text)
    return folder


def refusal(folder: Path) -> str:
    with pytest.raises(UserError) as error:
        read_config(folder)
    return str(error.value)


def test_a_configuration_is_parsed(tmp_path: Path) -> None:
    file = read_config(written(tmp_path, TEXT))
    assert file.config.name == "tiny"
    assert file.parameters == {"artifact": "/somewhere"}


def test_what_is_written_is_what_was_parsed(tmp_path: Path) -> None:
    file = read_config(written(tmp_path, TEXT))
    assert read_config(written(tmp_path, format_config(file.config))).config == file.config


@pytest.mark.parametrize(
    ("right", "wrong", "place"),
    [
        (
            "max_batch_size: 0",
            "max_batch_size: ${n}",
            "3: max_batch_size: Couldn't parse integer: $",
        ),
        (
            "max_batch_size: 0",
            "max_batch_size: 0.5",
            "3: max_batch_size: Couldn't parse integer: 0.5",
        ),
        (
            "TYPE_STRING",
            "TYPE_STRUNG",
            '6: data_type: Enum type "inference.DataType" has no value named TYPE_STRUNG',
        ),
        (
            "backend:",
            "backened:",
            '2: backened: Message type "inference.ModelConfig" has no field named "backened"',
        ),
        (
            "max_batch_size: 0",
            'name: "again"',
            '3: name: Message type "inference.ModelConfig" should not have multiple "name" fields',
        ),
    ],
)
def test_a_wrong_line_is_named_with_its_key(
    tmp_path: Path, right: str, wrong: str, place: str
) -> None:
    told = refusal(written(tmp_path, TEXT.replace(right, wrong)))
    assert told == f"{tmp_path}/config.pbtxt:{place}; run builder deploy --force again"


def test_a_file_that_ends_too_early_is_named_by_its_last_line(tmp_path: Path) -> None:
    told = refusal(written(tmp_path, TEXT.rstrip().removesuffix("}")))
    assert told.startswith(f"{tmp_path}/config.pbtxt:13: ")
    assert 'Expected "}"' in told


def test_a_model_without_configuration_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is no model: it has no config.pbtxt; remove it"


def test_a_configuration_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.pbtxt").write_bytes(b"name: '\xff'")
    assert "is not UTF-8 text" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("key", "line"), [("backend", 2), ("artifact", 10), ("text", 5), ("input", 4), ("absent", 1)]
)
def test_a_problem_is_placed_at_the_first_line_with_its_key(key: str, line: int) -> None:
    file = ConfigFile(Path("config.pbtxt"), TEXT, None)
    told = file.problem(key, "is wrong")
    assert told == f"config.pbtxt:{line}: {key}: is wrong; run builder deploy --force again"
