"""Links of the chain that change logits, and the one way in which they are applied.

A row that no link touches stays as the executor answered it. A drawn row with an edit is answered anew from its
full row, a greedy one only if an edit may move its arg-max. A log-sum-exp is corrected where that tells enough,
as its sum is the dearest part.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np

from builder.artifact.step import Float32, Int32, RowAsks, StepResult
from builder.targets.executor import likeliest_of, result_from_rows
from triton_backend.request import SamplingParams
from triton_backend.rows import LogitRow
from triton_backend.sampling.correction import correct
from triton_backend.sampling.kept import Float64

GREEDY = RowAsks(0, np.zeros(1, np.float32))
"""What a greedy row asks."""


class Edit(Protocol):
    """What one link does to the logits of one row. It depends on the row's own tokens alone."""

    def keeps(self, token_id: int) -> bool:
        """Whether it lowers nothing of `token_id` and raises no other id: if that leads, it still does."""
        ...

    def apply(self, logits: Float32) -> None:
        """Change the logits `[V]` in place."""
        ...


Link = Callable[[LogitRow], Edit | None]
"""Gives what a link does to a row; None where it is off."""


def edits_of(rows: Sequence[LogitRow], links: Sequence[Link]) -> dict[int, list[Edit]]:
    """Give the edits of each row that has any, in the order of `links`."""
    found = {}
    for place, row in enumerate(rows):
        sequence = row.sequence
        if (sequence.mask is None and _is_plain(sequence.request.params)) or row.num_behind:
            continue
        edits = [edit for link in links if (edit := link(row)) is not None]
        if edits:
            found[place] = edits
    return found


def apply_edits(
    result: StepResult, asks: RowAsks, edits: Mapping[int, Sequence[Edit]]
) -> tuple[StepResult, Float64]:
    """Answer `asks` as if the executor had given the edited logits; its own rows stay as they are.

    Tells too how far each log-sum-exp may be off, `[J]`: 0 where it is not corrected.
    """
    slack = np.zeros(len(asks.temperatures))
    places = [
        place
        for place, of_row in edits.items()
        if asks.temperatures[place] > 0 or _may_move(of_row, int(result.argmax[place]))
    ]
    if not places:
        return result, slack
    argmax, logsumexp = result.argmax.copy(), result.logsumexp.copy()
    ids, logits = result.candidate_ids.copy(), result.candidate_logits.copy()
    for place in places:
        # One after the other: a row that is answered while it is in the core's cache costs half.
        own, temperature = result.full_row(place), float(asks.temperatures[place])
        edited = _edited(own, edits[place])
        if not temperature:
            argmax[place] = result_from_rows(edited[None], GREEDY).argmax[0]
            continue
        told = correct(float(logsumexp[place]), own, edited, temperature)
        still_asked = np.array([0.0 if told else temperature], np.float32)
        anew = result_from_rows(edited[None], RowAsks(asks.num_candidates, still_asked))
        argmax[place], ids[place] = anew.argmax[0], anew.candidate_ids[0]
        logits[place] = anew.candidate_logits[0]
        logsumexp[place], slack[place] = told or (anew.logsumexp[0], 0.0)

    def full_row(place: int) -> Float32:
        return _edited(result.full_row(place), edits.get(place, ()))

    def likeliest(rows: Sequence[int], num_candidates: int) -> tuple[Int32, Float32]:
        ids, logits = result.likeliest(rows, num_candidates)
        changed = [index for index, place in enumerate(rows) if place in edits]
        ids[changed], logits[changed] = likeliest_of(full_row)(
            [rows[index] for index in changed], num_candidates
        )
        return ids, logits

    answers = StepResult(
        argmax=argmax,
        candidate_ids=ids,
        candidate_logits=logits,
        logsumexp=logsumexp,
        full_row=full_row,
        likeliest=likeliest,
    )
    return answers, slack


def _edited(row: Float32, edits: Sequence[Edit]) -> Float32:
    """Give a copy of logits `[V]` with edits done to it."""
    logits = row.copy()
    for edit in edits:
        edit.apply(logits)
    return logits


def _is_plain(params: SamplingParams) -> bool:
    """Whether no link but the mask is ever on: asked once, it costs a sixth of asking each link."""
    return not (
        params.logit_bias
        or params.bad_words
        or params.min_tokens
        or params.logits_processors
        or params.is_penalised
    )


def _may_move(edits: Sequence[Edit], argmax: int) -> bool:
    """Whether an arg-max (a real one: -1 is no id) may be another id after the edits."""
    return argmax >= 0 and not all(edit.keeps(argmax) for edit in edits)
