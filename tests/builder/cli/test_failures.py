"""Every failure becomes one line and an exit code."""

import errno

import click
import pytest
from click.testing import CliRunner, Result

from builder.cli.failures import printable, reported
from builder.errors import (
    ArtifactError,
    BuildError,
    CheckpointError,
    EngineError,
    RequestError,
    UnsupportedError,
    UserError,
    WorkError,
)


def run(error: BaseException, *, debug: bool = False) -> Result:
    @click.command()
    def command() -> None:
        with reported(debug=debug):
            raise error

    return CliRunner().invoke(command, [])


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (UserError("no"), 2),
        (CheckpointError("no"), 2),
        (UnsupportedError("no"), 2),
        (ArtifactError("no"), 2),
        (RequestError("no"), 2),
        (WorkError("no"), 1),
        (BuildError("no"), 1),
        (EngineError("no"), 1),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_raised_on_purpose_is_shown_as_it_is(error: Exception, exit_code: int) -> None:
    result = run(error)
    assert result.stderr == "error: no\n"
    assert result.stdout == ""
    assert result.exit_code == exit_code


def test_a_full_disk_names_the_file_and_the_remedy() -> None:
    result = run(OSError(errno.ENOSPC, "No space left on device", "out/weights"))
    assert result.stderr == (
        "error: out/weights: No space left on device; free some space and run it again\n"
    )
    assert result.exit_code == 1


def test_a_refused_permission_names_the_file_and_the_remedy() -> None:
    result = run(PermissionError(errno.EACCES, "Permission denied", "model"))
    assert result.stderr == (
        "error: model: Permission denied; change its permissions or choose another place\n"
    )
    assert result.exit_code == 1


def test_a_path_that_is_too_long_can_be_changed_by_the_user_and_is_not_repeated() -> None:
    result = run(OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300))
    assert result.stderr == (
        "error: a name or path is longer than the file system allows; choose a shorter one\n"
    )
    assert result.exit_code == 2


def test_an_operating_system_error_without_a_file_is_one_line() -> None:
    assert run(OSError(errno.EIO, "Input/output error")).stderr == "error: Input/output error\n"


def test_memory_that_runs_out_is_one_line() -> None:
    result = run(MemoryError())
    assert result.stderr.startswith("error: out of memory;")
    assert result.stderr.count("\n") == 1
    assert result.exit_code == 1


def test_an_interrupt_is_one_line() -> None:
    result = run(KeyboardInterrupt())
    assert result.stderr == "error: interrupted\n"
    assert result.exit_code == 1


@pytest.mark.parametrize("attribute", ["__cause__", "__context__"])
def test_an_interrupt_that_a_package_turned_into_an_error_of_its_own_is_one(attribute: str) -> None:
    """Such as numpy's, in the middle of its import."""
    error, between = ImportError("could not be imported"), RuntimeError()
    setattr(between, attribute, KeyboardInterrupt())
    error.__cause__ = between
    result = run(error)
    assert result.stderr == "error: interrupted\n"
    assert result.exit_code == 1


def test_an_exception_nobody_meant_is_called_a_defect_and_its_text_is_not_shown() -> None:
    result = run(KeyError("a secret prompt"))
    assert result.stderr.startswith("error: KeyError at ")
    assert "this is a defect in Forerun" in result.stderr
    assert "--debug" in result.stderr
    assert "secret" not in result.stderr
    assert result.stderr.count("\n") == 1
    assert result.exit_code == 1


def test_an_operating_system_error_that_is_only_text_is_a_defect() -> None:
    assert "this is a defect" in run(OSError("odd")).stderr


def test_debug_shows_the_traceback_before_the_line() -> None:
    result = run(UserError("no"), debug=True)
    assert result.stderr.startswith("Traceback (most recent call last):\n")
    assert result.stderr.endswith("error: no\n")
    assert result.exit_code == 2


def test_a_closed_pipe_ends_quietly() -> None:
    result = run(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    assert result.output == ""
    assert result.exit_code == 1


def test_a_usage_error_of_click_keeps_its_hint() -> None:
    result = run(click.UsageError("wrong"))
    assert "Error: wrong" in result.stderr
    assert result.exit_code == 2


def test_a_message_of_several_lines_is_shown_on_one() -> None:
    assert run(UserError("a\nb\x1b[31m")).stderr == "error: a\\nb\\x1b[31m\n"


def test_printable_keeps_letters_and_escapes_what_steers_a_terminal() -> None:
    assert printable("Straße 漢字 🙂 [b]") == "Straße 漢字 🙂 [b]"
    assert printable("\x1b]0;title\x07\r\u202e\udc80") == "\\x1b]0;title\\x07\\r\\u202e\\udc80"
