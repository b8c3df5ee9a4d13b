"""What is left of a step while it is planned: tokens, logit rows, and tokens of prompts."""

from dataclasses import dataclass

from triton_backend.plan import Scheduled
from triton_backend.sequence import Sequence


@dataclass(slots=True)
class Allowance:
    """Hands out shares, and draws them off."""

    num_tokens: int
    num_rows: int
    num_prompt_tokens: int
    """Tokens for those that have more than one pending."""

    @property
    def is_spent(self) -> bool:
        """Whether there is nothing left for another sequence."""
        return not (self.num_tokens and self.num_rows)

    def share(self, sequence: Sequence) -> Scheduled:
        """Give a sequence what it can use of what is left; 0 tokens if there is nothing."""
        first, pending = sequence.num_computed, sequence.num_pending
        most = self.num_tokens
        if pending > 1:
            most = min(most, self.num_prompt_tokens)
        first_row = sequence.first_row
        end = min(first + pending, first + most, first_row + self.num_rows)
        share = Scheduled(sequence, end - first, max(0, end - first_row))
        self.num_tokens -= share.num_tokens
        self.num_rows -= share.num_rows
        if pending > 1:
            self.num_prompt_tokens -= share.num_tokens
        return share

    def extend(self, share: Scheduled, drafted: tuple[int, ...]) -> Scheduled:
        """Add drafted tokens to a share; each needs a token and a row, which must be left."""
        self.num_tokens -= len(drafted)
        self.num_rows -= len(drafted)
        return Scheduled(
            share.sequence,
            share.num_tokens + len(drafted),
            share.num_rows + len(drafted),
            drafted,
        )
