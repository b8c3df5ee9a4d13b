"""Reads the file of API keys: one a line, each as a client can send it in a header."""

from pathlib import Path

from builder.errors import UserError


def read_keys(path: Path | None) -> tuple[str, ...]:
    """Read the keys of the OpenAI API; none without a file.

    Raises:
        UserError: the file can't be read, holds a key that no client could send, or none, so that it would close
            nothing. No key is told.
    """
    if path is None:
        return ()
    if not path.is_file():
        raise UserError(f"there is no file of keys at {path}")
    try:
        # Editors of some systems begin a file with a mark that would become part of the first key.
        lines = path.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not text; write one key a line") from error
    keys = {number: line.strip() for number, line in enumerate(lines, 1) if line.strip()}
    for number, key in keys.items():
        if not (key.isascii() and key.isprintable() and " " not in key):
            raise UserError(
                f"{path}:{number}: a key must be ASCII letters, digits and signs without spaces;"
                " no client could send this one"
            )
    if not keys:
        raise UserError(f"{path} holds no key; write one a line, or leave out --api-key-file")
    return tuple(keys.values())
