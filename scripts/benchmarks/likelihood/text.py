"""A text that a Linux machine has offline: half licences as Debian installs them, half docstrings of Python's library.

The text is the same wherever the same files are; `fingerprint` tells two texts apart.
"""

import ast
import hashlib
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

NAME = "half licence texts of Debian, half docstrings of Python's standard library"
LICENCES = Path("/usr/share/common-licenses")
NAMES = ("Apache-2.0", "Artistic", "CC0-1.0", "GFDL-1.3", "GPL-3", "LGPL-2.1", "MPL-2.0", "GPL-2")
"""One of each family, as versions of one repeat each other."""
MIN_CHARACTERS = 300
"""Shorter docstrings are names in other words."""

Tokens = NDArray[np.int32]


def licences() -> Iterator[str]:
    for name in NAMES:
        yield (LICENCES / name).read_text()


def docstrings() -> Iterator[str]:
    """Give the long docstrings of the standard library's modules, in the order of their files."""
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) >= MIN_CHARACTERS:
                    yield text


def take(texts: Iterator[str], tokenizer: Tokenizer, count: int) -> list[int]:
    """Give the first `count` tokens of texts, one after another.

    Raises:
        SystemExit: this machine has less text.
    """
    ids: list[int] = []
    for text in texts:
        ids += tokenizer.encode(text + "\n\n", add_special_tokens=False).ids
        if len(ids) >= count:
            return ids[:count]
    raise SystemExit(
        f"this machine has {len(ids)} tokens of one kind of text, {count} are asked for"
    )


def read_chunks(tokenizer: Path, num_tokens: int, chunk: int) -> Tokens:
    """Give tokens `[chunks, chunk]`, at least `num_tokens` in all, the first half of the chunks licences."""
    loaded = Tokenizer.from_file(str(tokenizer))
    half = -(-num_tokens // (2 * chunk))
    halves = [take(texts, loaded, half * chunk) for texts in (licences(), docstrings())]
    return np.array(halves, np.int32).reshape(2 * half, chunk)


def fingerprint(chunks: Tokens) -> str:
    return hashlib.sha256(chunks.tobytes()).hexdigest()[:16]
