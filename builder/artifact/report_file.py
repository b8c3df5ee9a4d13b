"""The file of a report in an artifact's folder, which may be absent."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from builder.errors import ArtifactError

T = TypeVar("T")


def read_file(path: Path, decode: Callable[[bytes], T], again: str) -> T | None:
    """Read and decode a report; None where there is none. `again` says in errors how to get another.

    Raises:
        ArtifactError: it can't be read.
    """
    if not os.path.lexists(path):
        return None
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ArtifactError(f"{path} can't be read: {error.strerror or error}; {again}") from error
    return decode(data)
