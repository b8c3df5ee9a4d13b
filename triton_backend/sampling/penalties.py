"""Penalties on ids that occurred: repetition counts prompt and answer, presence and frequency the answer alone.

Repetition comes first and by scale, whatever the count: a positive logit is divided, a negative one multiplied.
Then `presence + frequency * count` is subtracted. Drafted tokens count like tokens of the answer. All is computed
in float64; each of the two steps is rounded to float32 once.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from builder.artifact.step import Float32, Int32
from triton_backend.rows import LogitRow


@dataclass(frozen=True)
class Penalties:
    """The penalties of one row; at least one of them is on."""

    row: LogitRow
    repetition: float
    presence: float
    frequency: float

    def keeps(self, token_id: int) -> bool:
        """See `Edit`."""
        if self.repetition < 1.0 or self.presence < 0 or self.frequency < 0:
            return False  # a reward may lift any id above it
        counted = self._answer if self.repetition == 1.0 else self._known
        return not (counted == token_id).any()

    def apply(self, logits: Float32) -> None:
        """See `Edit`."""
        if self.repetition != 1.0:
            known = self._known
            values = logits[known].astype(np.float64)
            # An id that occurs twice is written twice, with the same value.
            logits[known] = np.where(values > 0, values / self.repetition, values * self.repetition)
        if self.presence or self.frequency:
            ids, counts = np.unique(self._answer, return_counts=True)
            logits[ids] -= self.presence + self.frequency * counts

    @cached_property
    def _known(self) -> Int32:
        """All tokens before this row's."""
        return self.row.known_ids

    @property
    def _answer(self) -> Int32:
        return self._known[self.row.sequence.num_prompt :]


def penalties_of(row: LogitRow) -> Penalties | None:
    """Give the penalties of a row."""
    params = row.sequence.request.params
    if params.repetition_penalty == 1.0 and not (
        params.presence_penalty or params.frequency_penalty
    ):
        return None
    return Penalties(
        row, params.repetition_penalty, params.presence_penalty, params.frequency_penalty
    )
