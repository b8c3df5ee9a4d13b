"""Reads files that may be missing, huge, truncated or hostile, and turns every mishap into one CheckpointError.

JSON is read strictly: UTF-8, one object, no repeated keys, no NaN. Big files are read part by part.
"""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from builder.errors import CheckpointError

Bytes = NDArray[np.uint8]

Progress = Callable[[int], None]
"""Told how many more bytes were read."""

MAX_TEXT_BYTES = 64 << 20
"""Largest file that is read as a whole. The largest tokenizer.json in the wild has about 35 MB."""


def read_bytes(path: Path, limit: int = MAX_TEXT_BYTES) -> bytes:
    """Read a whole file of at most `limit` bytes.

    Raises:
        CheckpointError: it is absent, unreadable or larger.
    """
    try:
        size = path.stat().st_size
        if size > limit:
            raise CheckpointError(f"{path} has {size} bytes, more than the {limit} allowed for it")
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {reason(error)}") from error


def read_text(path: Path) -> str:
    """Read a whole UTF-8 file.

    Raises:
        CheckpointError: it is absent, unreadable or not UTF-8.
    """
    return decode_text(read_bytes(path), str(path))


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds one object.

    Raises:
        CheckpointError: it is absent, unreadable, not strict JSON, or not an object.
    """
    return parse_json(read_bytes(path), str(path))


def parse_json(raw: bytes, what: str) -> dict[str, Any]:
    """Parse JSON that holds one object; `what` names it in errors.

    Raises:
        CheckpointError: it is not strict JSON, or not an object.
    """
    text = decode_text(raw, what)
    try:
        content = json.loads(
            text, object_pairs_hook=_unique, parse_constant=_refuse_number, parse_float=_finite
        )
    except RecursionError as error:
        raise CheckpointError(f"{what} is nested too deeply to be real") from error
    except ValueError as error:
        raise CheckpointError(f"{what} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise CheckpointError(f"{what} must hold a JSON object, not a {kind}")
    return content


def decode_text(raw: bytes, what: str) -> str:
    """Decode UTF-8; `what` names the text in errors.

    Raises:
        CheckpointError: it is not UTF-8.
    """
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{what} is not UTF-8 text (byte {error.start})") from error


@dataclass(frozen=True, slots=True)
class FilePart:
    """A run of bytes of a file, read when it is asked for.

    It is not mapped into memory: the system kills a process that touches a mapped file after it was cut short.
    """

    path: Path
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    def part(self, begin: int, end: int) -> "FilePart":
        """Give a part of this part; its bounds are counted from the begin of this one."""
        return FilePart(self.path, self.begin + begin, self.begin + end)

    def read(self) -> Bytes:
        """Read it, as bytes `[size]` that can't be written to.

        Raises:
            CheckpointError: the file can't be read any more, or became shorter.
        """
        content = np.empty(len(self), np.uint8)
        try:
            with self.path.open("rb") as stream:
                stream.seek(self.begin)
                count = stream.readinto(content.data)
        except OSError as error:
            raise CheckpointError(f"cannot read {self.path}: {reason(error)}") from error
        if count != len(self):
            raise CheckpointError(
                f"{self.path} became shorter while it was read; run it again when nothing writes to it"
            )
        content.flags.writeable = False
        return content


def open_file(path: Path) -> FilePart:
    """Give the whole of a file, not yet read.

    Raises:
        CheckpointError: it is absent, unreadable, empty or not a regular file.
    """
    try:
        if not path.is_file():
            raise CheckpointError(
                f"{path} is not a file" if path.exists() else f"no such file: {path}"
            )
        size = path.stat().st_size
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {reason(error)}") from error
    if size == 0:
        raise CheckpointError(f"{path} is empty; download it again")
    return FilePart(path, 0, size)


def reason(error: OSError) -> str:
    """Say in lower case why the operating system refused."""
    return (error.strerror or str(error)).lower()


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in pairs:
        if name in content:
            raise ValueError(f"key {name!r} appears twice")
        content[name] = value
    return content


def _finite(digits: str) -> float:
    value = float(digits)
    return value if math.isfinite(value) else _refuse_number(digits)


def _refuse_number(digits: str) -> NoReturn:
    raise ValueError(f"{digits} is not a finite number")
