"""The whole way in real processes: compile, inspect, generate, with pipes that close and disks that are full."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BUILDER = [sys.executable, "-m", "builder.cli.main"]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[bytes]:
    command = [*BUILDER, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, check=False, **options)


@pytest.mark.parametrize("flags", [[], ["--int8"]], ids=["float32", "int8"])
def test_compile_inspect_and_generate(tiny_folder: Path, tmp_path: Path, flags: list[str]) -> None:
    compiled = run("compile", tiny_folder, "-o", tmp_path / "out", *flags)
    assert compiled.returncode == 0, compiled.stderr
    assert compiled.stdout.startswith(f"{tmp_path / 'out'}: ".encode())
    assert b"\x1b" not in compiled.stderr

    inspected = run("inspect", tmp_path / "out", "--json", "--verify")
    assert json.loads(inspected.stdout)["model"]["num_layers"] == 2
    assert inspected.returncode == 0

    options = ["--max-tokens", 24, "--ignore-eos"]
    together = run("generate", tmp_path / "out", "Hello", "-", *options, input="Grüße".encode())
    alone = [
        run("generate", tmp_path / "out", "Hello", *options),
        run("generate", tmp_path / "out", "Grüße", *options),
    ]
    assert together.stdout == alone[0].stdout + alone[1].stdout
    assert together.stdout.decode().count("\n") >= 2
    assert together.stderr == b""
    assert together.returncode == 0


def test_text_is_utf8_whatever_the_locale_says(tiny_artifact: Path) -> None:
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    options = ["generate", tiny_artifact, "Hello", "--max-tokens", 24, "--ignore-eos"]
    assert run(*options, env=locale).stdout == run(*options).stdout != b"\n"


def test_a_reader_that_goes_away_ends_the_command_quietly(tiny_artifact: Path) -> None:
    command = [*BUILDER, "generate", str(tiny_artifact), "Hello", "--ignore-eos"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize("command", ["inspect", "generate"])
def test_a_full_disk_behind_stdout_is_one_line(tiny_artifact: Path, command: str) -> None:
    arguments = [tiny_artifact, *(["Hello", "--max-tokens", "4"] if command == "generate" else [])]
    with Path("/dev/full").open("wb") as full:
        result = subprocess.run(
            [*BUILDER, command, *map(str, arguments)],
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert result.stderr == b"error: No space left on device; free some space and run it again\n"
    assert result.returncode == 1


FAILING = """
import sys
from triton_backend import loading
from builder.cli.main import main
from tests.builder.cli.scripted_engine import Watched
Watched.fail_at = 1
loading.open_executor = Watched
main(sys.argv[1:])
"""


@pytest.mark.parametrize(("flags", "num_tracebacks"), [([], 0), (["--debug"], 1)])
def test_a_step_that_fails_is_one_line_unless_debug_is_asked_for(
    tiny_artifact: Path, flags: list[str], num_tracebacks: int
) -> None:
    """The engine logs where the step failed, and the command has a traceback of the error that it ended with."""
    program = [sys.executable, "-c", FAILING, *flags, "generate", str(tiny_artifact), "Hello"]
    result = subprocess.run(program, capture_output=True, text=True, check=False)
    assert result.stderr.count("Traceback") == num_tracebacks
    assert result.stderr.count("a step of 1 sequences failed: the device is gone") == num_tracebacks
    last = result.stderr.splitlines()[-1]
    assert last == "error: no complete answer for prompt 1: the engine failed: the device is gone"
    assert result.stdout == "\n"
    assert result.returncode == 1
