"""Links of the chain that change logits, and the one way in which they are applied.

A row that no link touches stays as the executor answered it. A log-sum-exp can't be corrected by subtraction
(what is banned often holds nearly all of the mass), so a drawn row with an edit is answered anew from its
full row; a greedy one only if an edit may move its arg-max.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from builder.artifact.step import Float32, RowAsks, StepResult
from builder.targets.executor import result_from_rows
from triton_backend.request import SamplingParams
from triton_backend.rows import LogitRow


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
) -> StepResult:
    """Answer `asks` as if the executor had given the edited logits; its own rows stay as they are."""
    places = [
        place
        for place, of_row in edits.items()
        if asks.temperatures[place] > 0 or _may_move(of_row, int(result.argmax[place]))
    ]
    if not places:
        return result
    argmax, logsumexp = result.argmax.copy(), result.logsumexp.copy()
    ids, logits = result.candidate_ids.copy(), result.candidate_logits.copy()
    for place in places:
        # One after the other: a row that is answered while it is in the core's cache costs half.
        temperature = asks.temperatures[place : place + 1]
        of_row = RowAsks(asks.num_candidates if temperature[0] > 0 else 0, temperature)
        anew = result_from_rows(_edited(result.full_row(place), edits[place])[None], of_row)
        argmax[place], logsumexp[place] = anew.argmax[0], anew.logsumexp[0]
        if of_row.num_candidates:
            ids[place], logits[place] = anew.candidate_ids[0], anew.candidate_logits[0]
    return StepResult(
        argmax=argmax,
        candidate_ids=ids,
        candidate_logits=logits,
        logsumexp=logsumexp,
        full_row=lambda place: _edited(result.full_row(place), edits.get(place, ())),
    )


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
        or params.presence_penalty
        or params.frequency_penalty
        or params.repetition_penalty != 1.0
    )


def _may_move(edits: Sequence[Edit], argmax: int) -> bool:
    """Whether an arg-max (a real one: -1 is no id) may be another id after the edits."""
    return argmax >= 0 and not all(edit.keeps(argmax) for edit in edits)
