"""What users hand to `builder generate` as text: prompts, from the command line or stdin, and a schema from a file."""

import re
from pathlib import Path
from typing import BinaryIO

from builder.errors import UserError
from triton_backend.constraint import Constraint, ConstraintKind

STDIN = "-"
MAX_STDIN_BYTES = 64 << 20
"""More than any model takes; what one model takes is known when it is loaded."""
NOT_UTF8 = re.compile("[\ud800-\udfff]")
"""Bytes that could not be read are lone surrogates in a text."""


def read_prompts(prompts: tuple[str, ...], stdin: BinaryIO) -> list[str]:
    """Give the prompts, `-` replaced by the whole of stdin.

    Raises:
        UserError: stdin is named twice or too long, or a prompt is not UTF-8.
    """
    if prompts.count(STDIN) > 1:
        raise UserError(f"stdin can be read once; give {STDIN} for one prompt only")
    texts = [
        read_all(stdin).decode("utf-8", "surrogateescape") if prompt == STDIN else prompt
        for prompt in prompts
    ]
    for number, text in enumerate(texts, start=1):
        refuse_other_encodings(f"prompt {number}", text)
    return texts


def read_all(stdin: BinaryIO) -> bytes:
    """Read stdin to its end.

    Raises:
        UserError: it is longer than any prompt.
    """
    content = stdin.read(MAX_STDIN_BYTES + 1)
    if len(content) > MAX_STDIN_BYTES:
        raise UserError(
            f"stdin has more than {MAX_STDIN_BYTES} bytes, which is no prompt of a model"
        )
    return content


def refuse_other_encodings(name: str, text: str) -> None:
    """Refuse text that was not UTF-8.

    Raises:
        UserError: names the first such character, counted from 1.
    """
    if wrong := NOT_UTF8.search(text):
        raise UserError(
            f"{name} is not UTF-8 text from character {wrong.start() + 1} on; convert it first"
        )


def read_schema(path: Path | None) -> Constraint | None:
    """Read what answers must conform to; nothing without a file.

    Raises:
        UserError: there is no such file, or it is too long or no UTF-8.
    """
    if path is None:
        return None
    if not path.is_file():
        raise UserError(f"--json-schema names no file: {path}")
    try:
        return Constraint(ConstraintKind.JSON_SCHEMA, path.read_text("utf-8"))
    except UnicodeDecodeError:
        raise UserError(f"{path} is not UTF-8 text; convert it first") from None
