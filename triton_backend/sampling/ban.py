"""A ban: ids that can't be drawn. Bans come after all that changes finite logits, so that nothing lifts one."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from builder.artifact.step import Float32


@dataclass(frozen=True, slots=True)
class Ban:
    """Ids whose logits become minus infinity."""

    ids: Collection[int]

    def keeps(self, token_id: int) -> bool:
        """See `Edit`."""
        return token_id not in self.ids

    def apply(self, logits: Float32) -> None:
        """See `Edit`."""
        logits[list(self.ids)] = -np.inf
