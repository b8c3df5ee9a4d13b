"""Turns what goes wrong in a command into one line on stderr and an exit code.

2: the user can change the request. 1: the request was right and the work failed, was interrupted, or met a
defect of Forerun. The texts of foreign exceptions are never shown: they may quote prompts.
"""

import contextlib
import errno
import sys
import traceback
from collections.abc import Iterator

import click

from builder.errors import ForerunError, UserError, WorkError

FAILED = WorkError.exit_code
MISUSED = UserError.exit_code


def printable(text: str) -> str:
    """Give `text` as one line that can't steer a terminal: control characters become escapes."""
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


@contextlib.contextmanager
def reported(*, debug: bool) -> Iterator[None]:
    """Report any failure of the body as `error: ...` and exit; with `debug`, after its traceback.

    Click's own exceptions pass, and so does a closed pipe: click ends quietly on it.

    Raises:
        click.exceptions.Exit: the failure was reported.
    """
    try:
        yield
    except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
        raise
    except (Exception, KeyboardInterrupt) as error:
        message, exit_code = describe(error)
        if isinstance(error, KeyboardInterrupt) and sys.stderr.isatty():
            click.echo(err=True)  # the terminal wrote ^C on the line
        if debug:
            click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        click.echo(f"error: {printable(message)}", err=True)
        raise click.exceptions.Exit(exit_code) from error


def describe(error: BaseException) -> tuple[str, int]:
    """Give the line that says what failed and what to do, and the exit code."""
    match error:
        case ForerunError():
            return str(error), error.exit_code
        case _ if _was_interrupted(error):
            return "interrupted", FAILED
        case MemoryError():
            return "out of memory; close other programs or use a machine with more memory", FAILED
        case OSError(errno=errno.ENAMETOOLONG):
            return (
                "a name or path is longer than the file system allows; choose a shorter one",
                MISUSED,
            )
        case OSError(errno=int()):
            return _describe_os_error(error), FAILED
        case _:
            return _describe_defect(error), FAILED


def _was_interrupted(error: BaseException) -> bool:
    """Whether an exception that nobody meant came of Ctrl-C: packages turn it into errors of their own in imports."""
    chain: BaseException | None = error
    while chain is not None and not isinstance(chain, KeyboardInterrupt):
        chain = chain.__cause__ or chain.__context__
    return chain is not None


def _describe_os_error(error: OSError) -> str:
    """Say which file the operating system refused, and why."""
    remedies = {
        errno.ENOSPC: "; free some space and run it again",
        errno.EDQUOT: "; free some of the quota and run it again",
        errno.EACCES: "; change its permissions or choose another place",
        errno.EPERM: "; change its permissions or choose another place",
    }
    name = f"{error.filename}: " if error.filename is not None else ""
    return f"{name}{error.strerror}{remedies.get(error.errno or 0, '')}"


def _describe_defect(error: BaseException) -> str:
    """Say where an exception that nobody meant to raise came from."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    return (
        f"{type(error).__name__}{place}: this is a defect in Forerun, please report it "
        "with the traceback that builder --debug COMMAND ... shows"
    )
