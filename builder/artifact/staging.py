"""Write a folder under a temporary name beside its own, and rename it when it is complete: it is there whole, or not at all."""

import contextlib
import fcntl
import glob
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from builder.errors import BuildError, UserError

UNIQUE_BYTES = 8
"""In the names of folders that are being written."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a destination is meant to become, and may therefore hold already."""

    noun: str
    """With its article."""
    option: str
    """What names the destination on the command line."""
    is_alone: Callable[[Path], bool]
    """Tell whether a folder is of this kind and holds no file that is not of it."""


def check_place(destination: Path, kind: Kind, *, replace_existing: bool) -> None:
    """Refuse a destination that may not be written, before any work is done and before it is renamed.

    Raises:
        UserError: it exists, or its parent does not, or what it holds is not of this kind and nothing else.
    """
    option = kind.option
    if not str(destination).isprintable():
        raise UserError(
            f"{option} {str(destination)!r} has characters that can't be shown; choose another"
        )
    if not destination.parent.is_dir():
        raise UserError(
            f"the folder {destination.parent} does not exist; create it or choose another {option}"
        )
    if not os.access(destination.parent, os.W_OK):
        raise UserError(f"the folder {destination.parent} is not writable; choose another {option}")
    longest = os.pathconf(destination.parent, "PC_NAME_MAX")
    if len(os.fsencode(_prefix(destination))) + 2 * UNIQUE_BYTES > longest:
        raise UserError(
            f"the name of {option} is too long: beside it stands a folder with "
            f"{len(_prefix(Path())) + 2 * UNIQUE_BYTES} more bytes while it is written, and names have at most {longest}"
        )
    if not os.path.lexists(destination):
        return
    if not kind.is_alone(destination):
        raise UserError(
            f"{destination} exists and is not {kind.noun}, or holds other files too; choose another {option}"
        )
    if not replace_existing:
        raise UserError(f"{destination} already holds {kind.noun}; add --force to replace it")


@contextlib.contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """Give an empty folder beside `destination` that is removed unless it is renamed.

    The folder is locked while it is in use, so that other builds can tell it from one that was abandoned.

    Raises:
        BuildError: the disk is full.
    """
    # Named before it is made: an interrupt in between then leaves nothing that only a lost result names.
    folder = destination.parent / f"{_prefix(destination)}{secrets.token_hex(UNIQUE_BYTES)}"
    try:
        _remove_abandoned(destination)
        with _made_and_locked(folder):
            yield folder
    except BrokenPipeError:  # of whoever watches: no file of ours is a pipe
        raise
    except OSError as error:
        raise _cannot_write(destination, error) from error
    finally:
        _remove(folder)


@contextlib.contextmanager
def _made_and_locked(folder: Path) -> Iterator[None]:
    folder.mkdir()
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        _remove(folder)  # while it is locked: nobody else takes it for an abandoned one
        os.close(lock)


def _remove(folder: Path) -> None:
    """Remove a folder if it is there; an interrupt in the middle only comes afterwards."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _prefix(destination: Path) -> str:
    return f".{destination.name}.partial-"


def _cannot_write(destination: Path, error: OSError) -> BuildError:
    return BuildError(
        f"can't write {destination}: {error.strerror or error}; nothing was left behind"
    )


def _remove_abandoned(destination: Path) -> None:
    """Remove what killed builds of the same destination left: folders that nobody has locked."""
    for folder in destination.parent.glob(f"{glob.escape(_prefix(destination))}*"):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
        except BlockingIOError:
            continue
        finally:
            os.close(lock)


def swap(folder: Path, destination: Path) -> None:
    """Rename `folder` to `destination`; what was there comes back if that fails or is interrupted."""
    old = folder.with_name(folder.name.replace(".partial-", ".old-"))
    try:
        if destination.exists():
            destination.rename(old)
        folder.rename(destination)
    finally:
        if old.exists() and not destination.exists():
            old.rename(destination)
        _remove(old)
