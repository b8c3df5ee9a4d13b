"""When things happened to one answer, and how much was computed for it.

`Timeline` belongs to a sequence, and only `EngineMetrics` writes it. `RequestRecord` is what is left of it at the
end. Times are seconds on the engine's clock. A request with n choices has n of each.
"""

from dataclasses import dataclass

from triton_backend.request import FinishReason


@dataclass(slots=True)
class Timeline:
    """The marks of a sequence so far; None for what has not happened."""

    submitted_s: float = 0.0
    admitted_s: float | None = None
    """First admission; a later one, after a preemption, does not count."""
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_deliveries: int = 0
    """Steps that brought tokens: one each, or a run where drafts were accepted."""
    num_computed_tokens: int = 0
    """Tokens computed by steps, computed again and rejected ones included."""
    num_computed_prompt_tokens: int = 0
    """Those of them that belong to the prompt."""
    num_preemptions: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class RequestRecord:
    """One answer that is over, whatever the reason. Counters of the engine are sums over these."""

    request_id: str
    choice: int
    finish_reason: FinishReason
    submitted_s: float
    admitted_s: float | None
    first_token_s: float | None
    last_token_s: float | None
    finished_s: float
    num_prompt_tokens: int
    num_generated_tokens: int
    num_deliveries: int
    num_cached_tokens: int
    num_computed_tokens: int
    num_computed_prompt_tokens: int
    num_preemptions: int
    num_drafted_tokens: int
    num_accepted_tokens: int

    @property
    def queue_s(self) -> float | None:
        """Seconds from submit to the first admission."""
        return None if self.admitted_s is None else self.admitted_s - self.submitted_s

    @property
    def ttft_s(self) -> float | None:
        """Seconds from submit to the first token."""
        return None if self.first_token_s is None else self.first_token_s - self.submitted_s

    @property
    def end_to_end_s(self) -> float:
        """Seconds from submit to the end."""
        return self.finished_s - self.submitted_s

    @property
    def mean_itl_s(self) -> float | None:
        """Mean seconds between deliveries of tokens; None when there were fewer than two."""
        if self.num_deliveries < 2 or self.last_token_s is None or self.first_token_s is None:
            return None
        return (self.last_token_s - self.first_token_s) / (self.num_deliveries - 1)
