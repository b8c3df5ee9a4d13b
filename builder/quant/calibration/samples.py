"""The token rows that a model is calibrated with, packed so that nothing is padding.

Samples lie one after another in rows of equal length; positions start again with each, and no sample sees another.
A sample that a row has no room for goes on in the next, as a sample of its own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from builder.artifact.step import Int32
from builder.errors import UserError

ROW = 512
"""Tokens of a row."""
ROWS = 4
"""Rows of a batch: one by one takes twice the time."""
FEW_TOKENS = 2048
"""Below this, scales tell more of the samples than of the model."""


@dataclass(frozen=True)
class Samples:
    """What a model is calibrated with, in its tokens."""

    name: str
    """Of the text, for people."""
    sha256: str
    """Of its bytes."""
    rows: tuple[tuple[int, ...], ...]
    """Ids of each sample."""
    control_ids: frozenset[int] = frozenset()
    """Ids that stand for no text."""

    @cached_property
    def num_tokens(self) -> int:
        """Tokens of all samples."""
        return sum(map(len, self.rows))

    @cached_property
    def num_text_tokens(self) -> int:
        """Those that stand for text."""
        return sum(token not in self.control_ids for row in self.rows for token in row)

    @property
    def warning(self) -> str | None:
        """Say that the samples are too few to rely on, where they are."""
        if self.num_text_tokens >= FEW_TOKENS:
            return None
        return (
            f"calibration has {self.num_text_tokens} tokens of text, fewer than {FEW_TOKENS}: scales may fit nothing "
            "else; give more text with --calib, or none for Forerun's own"
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows that are run at once."""

    token_ids: Int32
    """`[rows, tokens]`"""
    positions: Int32
    """`[rows, tokens]`: 0 where a sample begins."""


def check_samples(samples: Samples, vocab_size: int) -> None:
    """Refuse samples that say nothing about a model.

    Raises:
        UserError: there is none, or nothing but control tokens and padding; or an id that the model lacks.
    """
    if not samples.rows:
        raise UserError(f"{samples.name} has no sample to calibrate with; give some text")
    if samples.num_text_tokens == 0:
        raise UserError(
            f"{samples.name} has {samples.num_tokens} tokens to calibrate with, all of them control tokens or padding; "
            "give some text"
        )
    largest = max(token for row in samples.rows for token in row)
    if largest >= vocab_size:
        raise UserError(
            f"{samples.name} has token {largest}, and the model has {vocab_size}; they do not go together"
        )


def batches(samples: Samples, length: int = ROW) -> Iterator[Batch]:
    """Pack samples into batches of full rows of `length` tokens, and the rest into one of a shorter row."""
    ids = np.fromiter((token for row in samples.rows for token in row), np.int32)
    starts = np.zeros(ids.size, bool)
    starts[np.cumsum([0, *(len(row) for row in samples.rows if row)])[:-1]] = True
    starts[::length] = True
    places = np.arange(ids.size, dtype=np.int32)
    positions = places - np.maximum.accumulate(np.where(starts, places, 0))
    full = ids.size // length * length
    for begin in range(0, full, ROWS * length):
        end = min(begin + ROWS * length, full)
        yield _batch(ids[begin:end], positions[begin:end], length)
    if full < ids.size:
        yield _batch(ids[full:], positions[full:], ids.size - full)


def _batch(ids: Int32, positions: Int32, length: int) -> Batch:
    return Batch(ids.reshape(-1, length), positions.astype(np.int32).reshape(-1, length))
