"""Ends what is left of a server when its starter was killed: `python -m triton_backend.launcher.guard MARK FOLDER`.

The guard is told by its standard input, which nobody but the starter can close. Nothing else would do it: a stub
whose server was killed can wait for ever for an answer of it, and the engine host waits for the stub.
"""

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from triton_backend.launcher import family
from triton_backend.subprograms import command_of

END_S = 30.0
"""For the guard itself, which has nothing to do when all went well."""


@contextlib.contextmanager
def guarded(mark: str, folder: Path) -> Iterator[None]:
    """Have everything with the mark ended, and the folder removed, however this process ends."""
    command = [*command_of("triton_backend.launcher.guard"), mark, str(folder)]
    guard = subprocess.Popen(  # noqa: S603 (our own program)
        command,
        stdin=subprocess.PIPE,
        start_new_session=True,  # signals for the group of the starter are not for the guard
    )
    try:
        yield
    finally:
        assert guard.stdin is not None
        guard.stdin.close()
        guard.wait(END_S)


def main(mark: str, folder: str) -> None:
    """Wait for the end of the starter, then clean up."""
    sys.stdin.buffer.read()
    family.end(mark)
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
