"""One row of logits: which sequence it belongs to, and what is known before the token it tells of.

The scheduler plans rows, the sampler reads them, commit appends what was drawn. A row belongs to one step.
"""

from enum import Enum, auto
from typing import NamedTuple

import numpy as np

from builder.artifact.step import Int32
from triton_backend.sequence import Sequence


class NoToken(Enum):
    """Why nothing can be drawn from a row."""

    BROKEN = auto()
    """The executor's logits are not finite numbers."""
    BROKEN_BY_PROCESSOR = auto()
    """They are none after the request's logits processors."""
    NOTHING_LEFT = auto()
    """The executor's are, and what the request bans leaves none of them."""


Drawn = int | NoToken
"""What comes of a row: an id, or why there is none."""


class LogitRow(NamedTuple):
    """The logits of the token after `num_known` others.

    |<-- token_ids of the sequence -->|<-- drafted -->| this row
    |<-- num_known -->| this row |<-- num_behind  -->|            (a prompt whose logprobs are asked)
    """

    sequence: Sequence
    drafted: tuple[int, ...] = ()
    """Drafts between the sequence's last known token and this row; they count as known here."""
    num_behind: int = 0
    """Tokens of the sequence that come after this row's place: if any, its token needs no draw."""

    @property
    def num_known(self) -> int:
        """Tokens before the one that this row tells of: also that one's absolute position."""
        return len(self.sequence.token_ids) + len(self.drafted) - self.num_behind

    @property
    def num_generated(self) -> int:
        """Tokens of the answer before this row's."""
        return self.num_known - self.sequence.num_prompt

    @property
    def known_ids(self) -> Int32:
        """The tokens of a row that is drawn, `[num_known]`: prompt, answer and drafts. A copy."""
        known = np.array(self.sequence.token_ids, np.int32)  # by its buffer: 5 us for 32,000
        return np.append(known, np.array(self.drafted, np.int32)) if self.drafted else known

    @property
    def next_token_id(self) -> int | None:
        """The token after this row where it is known already; None where it must be drawn."""
        return self.sequence.token_ids[self.num_known] if self.num_behind else None
