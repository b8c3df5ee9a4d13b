"""Structured output: what the mask of an answer does not allow can't be drawn."""

from triton_backend.rows import LogitRow
from triton_backend.structured.mask import AnswerMask


def mask_of(row: LogitRow) -> AnswerMask | None:
    """Give the mask of a row, which is an `Edit` as it stands: `keeps` costs less than a mask of all ids.

    It stands behind the sequence's last known token, so a constrained answer is never drafted.
    """
    return row.sequence.mask
