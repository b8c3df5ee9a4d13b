"""Streams that are closed, narrow, or of a poor encoding."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from builder.cli.main import main
from tests.models import tiny_llama

BUILDER = [sys.executable, "-m", "builder.cli.main"]


def run_closed(numbers: tuple[int, ...], *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run the command in a process in which these file descriptors are closed."""

    def close() -> None:
        for number in numbers:
            os.close(number)

    command = [*BUILDER, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True}
    return subprocess.run(command, preexec_fn=close, check=False, **pipes)


@pytest.mark.parametrize("numbers", [(1,), (0, 1, 2)])
def test_every_command_works_with_closed_streams(
    numbers: tuple[int, ...], tiny_folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out"
    assert run_closed(numbers, "compile", tiny_folder, "-o", output).returncode == 0
    assert run_closed(numbers, "inspect", output, "--verify").returncode == 0
    answered = run_closed(numbers, "generate", output, "Hello", "--max-tokens", 8, "--stats")
    assert answered.returncode == 0
    assert (answered.stdout == b"") == (1 in numbers)
    assert (answered.stderr == b"") == (2 in numbers)


def test_a_closed_stdin_reads_as_empty(tiny_artifact: Path) -> None:
    result = run_closed((0,), "generate", tiny_artifact, "-")
    assert result.stderr.startswith(b"error: the prompt must have at least 1 token")
    assert result.returncode == 2


@pytest.mark.parametrize("arguments", [["--bogus"], ["inspect"], ["inspect", "nowhere"]])
def test_what_is_wrong_is_told_by_the_exit_code_when_nobody_listens(arguments: list[str]) -> None:
    assert run_closed((0, 1, 2), *arguments).returncode == 2


def test_letters_that_the_encoding_lacks_become_escapes(tmp_path: Path) -> None:
    model, output = tiny_llama(tmp_path / "Grüße"), tmp_path / "漢字"
    narrow = {"PYTHONIOENCODING": "ascii", "LC_ALL": "C.UTF-8"}
    for arguments in (["compile", str(model), "-o", str(output)], ["inspect", str(output)]):
        result = subprocess.run(
            [*BUILDER, *arguments], env=narrow, capture_output=True, text=True, check=False
        )
        assert "defect" not in result.stderr
        assert result.returncode == 0
    assert "\\u6f22\\u5b57" in result.stdout
    assert "Gr\\xfc\\xdfe" in result.stdout


@pytest.mark.parametrize(
    "arguments", [["inspect"], ["compile"], ["validate"], ["serve"], ["generate", "hi"]]
)
@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000], ids=["a name", "a path"])
def test_a_path_that_is_too_long_is_a_mistake_of_the_user(
    arguments: list[str], name: str, tmp_path: Path
) -> None:
    command, *rest = arguments
    result = CliRunner().invoke(main, [command, f"{tmp_path}/{name}", *rest])
    assert result.stderr.startswith("error: ")
    assert "defect" not in result.stderr
    assert result.exit_code == 2
