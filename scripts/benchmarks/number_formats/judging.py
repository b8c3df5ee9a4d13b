"""Reads texts with engines, and holds whole rows of logits against those of float32."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from likelihood.readings import Float32, Reader
from likelihood.text import Tokens, fingerprint
from rich.console import Console
from rich.progress import track

from builder.artifact.store import Artifact, read_manifest
from builder.cli.gate.encoding import chunks_of, encode_text
from builder.gate.figures import Figures, TokenFigures, compare, summed
from builder.gate.text import Text
from triton_backend.loading import load_model

ROWS = 64
"""Compared at once."""


@dataclass(frozen=True, slots=True)
class Held:
    """A text in a model's tokens, and what float32 says of it."""

    text: Text
    chunks: tuple[Tokens, ...]
    logits: Float32
    """`[tokens, V]` of all chunks, one after another; in a file, since they are many."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are read."""
        return sum(map(len, self.chunks))


def cut(root: Path, text: Text, num_tokens: int) -> tuple[Tokens, ...]:
    """Cut the beginning of a text as the quality gate does, with the tokenizer of an artifact."""
    with contextlib.closing(load_model(Artifact(root, read_manifest(root)), threads=1)) as model:
        return tuple(chunks_of(model, encode_text(model, text)[:num_tokens]))


def hold(
    text: Text, chunks: tuple[Tokens, ...], reference: Callable[[], Reader], folder: Path
) -> Held:
    """Have the reference read a text, once, and keep what it says in a file of a folder."""
    file = folder / f"{fingerprint(np.concatenate(chunks))}.npy"
    if not file.exists():
        _write(text, chunks, reference(), file)
    return Held(text, chunks, np.load(file, mmap_mode="r"))


def _write(text: Text, chunks: tuple[Tokens, ...], reference: Reader, file: Path) -> None:
    logits: Any = None
    place = 0
    part = file.with_suffix(".part")
    for chunk in track(chunks, f"float32: {text.name}", console=Console(stderr=True)):
        for rows in reference(chunk):
            if logits is None:
                shape = (sum(map(len, chunks)), rows.shape[1])
                files: Any = np.lib.format  # whose functions have no types
                logits = files.open_memmap(part, "w+", np.float32, shape)
            logits[place : place + len(rows)] = rows
            place += len(rows)
    logits.flush()
    part.rename(file)


def judged(name: str, read: Reader, held: Held) -> Figures:
    """Hold an engine against the reference."""
    return summed(_compared(name, read, held))


def _compared(name: str, read: Reader, held: Held) -> Iterator[TokenFigures]:
    first = 0
    for chunk in track(held.chunks, f"{name}: {held.text.name}", console=Console(stderr=True)):
        theirs = held.logits[first : first + len(chunk)]
        first += len(chunk)
        place = 0
        for rows in (part for piece in read(chunk) for part in _parts(piece)):
            coming = chunk[1 + place :][: len(rows)]
            if num := len(coming):  # nobody knows what comes behind the last token
                yield compare(theirs[place : place + num], rows[:num], coming)
            place += len(rows)


def _parts(rows: Float32) -> Iterator[Float32]:
    for first in range(0, len(rows), ROWS):
        yield rows[first : first + ROWS]
