"""Minimum length: ids that would end an answer can't be drawn before it has `min_tokens` tokens."""

from triton_backend.rows import LogitRow
from triton_backend.sampling.ban import Ban


def min_tokens_of(row: LogitRow) -> Ban | None:
    """Give the ids that would end a row's answer too early.

    Under a constraint that allows nothing more, the answer is complete, however short it is.
    """
    sequence = row.sequence
    if row.num_generated >= sequence.request.params.min_tokens or not sequence.stopping_ids:
        return None
    if sequence.mask is not None and sequence.mask.is_complete:
        return None
    return Ban(sequence.stopping_ids)
