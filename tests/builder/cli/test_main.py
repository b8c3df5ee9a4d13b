"""The group: help without imports, the table of commands, options of its own."""

import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from builder.cli.main import COMMANDS, main

HELP_FOLDER = Path(__file__).with_name("help")
HELP = """\
Usage: builder [OPTIONS] COMMAND [ARGS]...

  Compile language models ahead of time, and run what was compiled.

Options:
  --debug     Show the traceback of a failure before its one line.
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Commands:
  compile   Compile a checkpoint into one artifact.
  inspect   Show what an artifact is and holds.
  verify    Prove that an artifact is whole and its answers repeatable.
  export    Write an artifact back as a Hugging Face checkpoint.
  generate  Generate text with an artifact.
  simulate  Compare scheduling policies on a virtual clock.
  digest    Name a common beginning of prompts.
  deploy    Write an artifact into a Triton model repository.
  validate  Check a Triton model repository without a server.
  serve     Serve a model repository in Triton, and as an OpenAI API.
"""


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_the_group(flag: str) -> None:
    result = CliRunner().invoke(main, [flag], prog_name="builder")
    assert result.output == HELP
    assert result.exit_code == 0


def test_help_imports_nothing_heavy_and_answers_at_once() -> None:
    program = (
        "import sys\n"
        "from builder.cli.main import main\n"
        "try: main(['--help'], prog_name='builder')\n"
        "finally: sys.stderr.write(' '.join(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    started = time.monotonic()
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert time.monotonic() - started < 5.0, "ten times the bound of half a second"
    assert result.stdout == HELP
    heavy = {
        *("numpy", "torch", "onnx", "onnx_ir", "onnxruntime", "transformers", "tensorrt", "gguf"),
        *("safetensors", "tokenizers", "jinja2", "rich", "huggingface_hub", "psutil", "msgspec"),
    }
    assert set(result.stderr.split()) & heavy == set()


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_is_what_was_read_and_agreed(name: str) -> None:
    """After a change on purpose: read the new help, and store it in help/<command>.txt."""
    result = CliRunner().invoke(main, [name, "--help"], prog_name="builder", terminal_width=100)
    assert result.stdout == (HELP_FOLDER / f"{name}.txt").read_text()


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_the_short_help_of_the_table(name: str) -> None:
    result = CliRunner().invoke(main, [name, "--help"], prog_name="builder")
    assert result.exit_code == 0
    assert result.stdout.startswith(f"Usage: builder {name} ")
    assert "\\" not in result.stdout, "a mark for click that it did not read"
    assert result.stderr == ""
    command = main.get_command(click.Context(main), name)
    assert command is not None
    assert command.short_help == COMMANDS[name].help


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_has_a_help_text(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = [param for param in command.params if isinstance(param, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_an_unknown_command_is_answered_with_close_matches() -> None:
    result = CliRunner().invoke(main, ["compil"])
    assert result.stderr == (
        "error: the first argument is no command. Did you mean compile? "
        f"Known: {', '.join(sorted(COMMANDS))}.\n"
    )
    assert result.exit_code == 2


@pytest.mark.parametrize("name", [name for name, entry in COMMANDS.items() if entry.extra])
def test_a_command_without_its_extra_names_the_extra(name: str) -> None:
    program = (
        "import sys\n"
        "sys.modules['tritonclient'] = None\n"
        "from builder.cli.main import main\n"
        f"main(['{name}', 'a', 'b'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert result.stderr == (
        f"error: builder {name} needs tritonclient; install forerun[{COMMANDS[name].extra}]\n"
    )
    assert result.returncode == 2


def test_an_unknown_option_of_the_group_is_a_usage_error() -> None:
    result = CliRunner().invoke(main, ["--bogus", "compile"])
    assert "An argument begins with - and is no option." in result.stderr
    assert "bogus" not in result.stderr
    assert result.exit_code == 2


def test_no_command_shows_the_help_and_fails() -> None:
    result = CliRunner().invoke(main, [], prog_name="builder")
    assert result.stderr.strip() == HELP.strip()
    assert result.stdout == ""
    assert result.exit_code == 2


def test_version_is_that_of_the_distribution() -> None:
    result = CliRunner().invoke(main, ["--version"])
    assert result.output == f"builder, version {version('forerun')}\n"


def test_debug_of_the_group_shows_the_traceback_of_a_command() -> None:
    quiet = CliRunner().invoke(main, ["inspect", "no-such-folder"])
    loud = CliRunner().invoke(main, ["--debug", "inspect", "no-such-folder"])
    assert quiet.stderr.startswith("error: there is no artifact at no-such-folder")
    assert loud.stderr.startswith("Traceback (most recent call last):")
    assert loud.stderr.endswith(quiet.stderr)
    assert quiet.exit_code == loud.exit_code == 2
