"""Minimum length: ids that would end an answer can't be drawn before it has `min_tokens` tokens."""

from collections.abc import Mapping
from typing import TypeVar

import numpy as np

from builder.artifact.step import Float32, Int32, RowAsks, StepResult
from builder.targets.executor import result_from_rows
from triton_backend.sequence import Sequence

_Values = TypeVar("_Values", Int32, Float32)


def banned_ids(sequences: list[Sequence]) -> dict[int, frozenset[int]]:
    """Give the ids that each row may not draw, for the rows that have any."""
    return {
        row: sequence.stopping_ids
        for row, sequence in enumerate(sequences)
        if sequence.num_generated < sequence.request.params.min_tokens and sequence.stopping_ids
    }


def without_banned(
    result: StepResult, asks: RowAsks, banned: Mapping[int, frozenset[int]]
) -> StepResult:
    """Answer `asks` as if each banned id had a logit of minus infinity.

    A log-sum-exp can't be corrected by subtraction (an end id often holds nearly all of the mass), so
    rows that are drawn are answered anew from their full row; greedy rows only if their arg-max is banned.
    """
    rows = [
        row
        for row, ids in banned.items()
        if asks.temperatures[row] > 0 or int(result.argmax[row]) in ids
    ]
    if not rows:
        return result
    logits = np.stack([result.full_row(row) for row in rows])
    for line, row in zip(logits, rows, strict=True):
        line[list(banned[row])] = -np.inf
    anew = result_from_rows(logits, RowAsks(asks.num_candidates, asks.temperatures[rows]))
    edited = dict(zip(rows, logits, strict=True))
    return StepResult(
        argmax=_replaced(result.argmax, rows, anew.argmax),
        candidate_ids=_replaced(result.candidate_ids, rows, anew.candidate_ids),
        candidate_logits=_replaced(result.candidate_logits, rows, anew.candidate_logits),
        logsumexp=_replaced(result.logsumexp, rows, anew.logsumexp),
        full_row=lambda row: edited[row] if row in edited else result.full_row(row),
    )


def _replaced(whole: _Values, rows: list[int], values: _Values) -> _Values:
    """Copy `whole` with other values in some rows."""
    copy = whole.copy()
    copy[rows] = values
    return copy
