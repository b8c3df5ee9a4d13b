"""Makes the standard streams fit to be used, whoever started the process."""

import io
import os
import sys


def mend_streams() -> None:
    """Open what is closed, and let every text be written.

    A closed stream reads as empty and swallows what is written to it. If it stayed closed, the next file that is
    opened would take its number, and what a library prints would end up in that file. A letter that the encoding
    of a stream lacks is written as an escape.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if _is_closed(number):
            _open_nothing(number)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w" if number else "r", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False


def _open_nothing(number: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
