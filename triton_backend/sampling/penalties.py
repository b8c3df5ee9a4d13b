"""Penalties on ids that occurred: repetition counts prompt and answer, presence and frequency the answer alone.

Repetition comes first and by scale, whatever the count: a positive logit is divided, a negative one multiplied.
Then `presence + frequency * count` is subtracted. Drafted tokens count like tokens of the answer. All is computed
in float64; each of the two steps is rounded to float32 once.
"""

from dataclasses import dataclass

import numpy as np

from builder.artifact.step import Float32, Int32
from triton_backend.occurrences import Occurrences
from triton_backend.rows import LogitRow


@dataclass(frozen=True, slots=True)
class Penalties:
    """The penalties of one row; at least one of them is on."""

    occurrences: Occurrences
    drafted: tuple[int, ...]
    repetition: float
    presence: float
    frequency: float

    def keeps(self, token_id: int) -> bool:
        """See `Edit`."""
        if self.repetition < 1.0 or self.presence < 0 or self.frequency < 0:
            return False  # a reward may lift any id above it
        if token_id in self.drafted or self.occurrences.is_in_answer(token_id):
            return False
        return self.repetition == 1.0 or not self.occurrences.is_in_prompt(token_id)

    def apply(self, logits: Float32) -> None:
        """See `Edit`."""
        ids, counts = self.occurrences.counts(self.drafted)
        if self.repetition != 1.0:
            known: Int32 = np.concatenate((self.occurrences.prompt_ids, ids))
            values = logits[known].astype(np.float64)
            # An id that occurs twice is written twice, with the same value.
            logits[known] = np.where(values > 0, values / self.repetition, values * self.repetition)
        if self.presence or self.frequency:
            logits[ids] -= self.presence + self.frequency * counts


def penalties_of(row: LogitRow) -> Penalties | None:
    """Give the penalties of a row."""
    occurrences = row.sequence.occurrences
    if occurrences is None:
        return None
    occurrences.read(row.sequence.token_ids)
    params = row.sequence.request.params
    return Penalties(
        occurrences,
        row.drafted,
        params.repetition_penalty,
        params.presence_penalty,
        params.frequency_penalty,
    )
