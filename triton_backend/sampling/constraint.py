"""Structured output: what the mask of an answer does not allow can't be drawn."""

from collections.abc import Iterable

from triton_backend.rows import LogitRow
from triton_backend.structured.mask import AnswerMask


def begin_masks(rows: Iterable[LogitRow]) -> None:
    """Let the masks of rows be computed while the executor runs: a hostile grammar's takes as long as a step."""
    for row in rows:
        if row.sequence.mask is not None:
            row.sequence.mask.begin()


def mask_of(row: LogitRow) -> AnswerMask | None:
    """Give the mask of a row, which is an `Edit` as it stands: `keeps` costs less than a mask of all ids.

    It stands behind the sequence's last known token, so a constrained answer is never drafted.
    """
    return row.sequence.mask
