"""What the engine counts and times. Single-threaded like the engine, and without a clock of its own.

Everything is counted once per answer (choice) and also kept in the answer's own record, so that each counter is
exactly a sum over records and open answers. Nothing is ever reset: who wants to leave a warm-up out builds the
engine that serves, and with it this object, after it.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from triton_backend.histogram import (
    END_TO_END_BOUNDS_S,
    FIRST_TOKEN_BOUNDS_S,
    INTER_TOKEN_BOUNDS_S,
    QUEUE_BOUNDS_S,
    Histogram,
)
from triton_backend.reasons import Refusal, WaitReason
from triton_backend.request import FinishReason
from triton_backend.sequence import Sequence
from triton_backend.timeline import RequestRecord

COMPLETE = frozenset({FinishReason.STOP, FinishReason.LENGTH})
"""Answers that came to an end of their own: only those tell how long a whole answer takes."""


@dataclass(slots=True)
class EngineMetrics:
    """Counters since the engine was built, and histograms of seconds."""

    num_submitted: int = 0
    """Answers that were taken; a request with n choices counts n times."""
    refusals: Counter[Refusal] = field(default_factory=Counter)
    """Requests that were not taken, by reason."""
    num_admitted: int = 0
    """Answers that left the queue for the first time."""
    ends: Counter[FinishReason] = field(default_factory=Counter)
    """Answers that are over, by reason."""
    num_preemptions: int = 0
    """Times that an answer lost its blocks to older ones."""
    num_prompt_tokens: int = 0
    """Tokens of the prompts of admitted answers."""
    num_hit_tokens: int = 0
    """Those of them whose KV was reused at the first admission."""
    num_computed_tokens: int = 0
    """Tokens that steps computed: of prompts, answers, drafts, and again after a preemption."""
    num_computed_prompt_tokens: int = 0
    """Those of them that belong to prompts."""
    num_generated_tokens: int = 0
    num_drafted_tokens: int = 0
    num_accepted_tokens: int = 0
    num_steps: int = 0
    last_step_s: float | None = None
    """When a step was last done, by the engine's clock."""
    queue_s: Histogram = field(default_factory=lambda: Histogram(QUEUE_BOUNDS_S))
    """Submit to first admission."""
    ttft_s: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_BOUNDS_S))
    """Submit to first token."""
    itl_s: Histogram = field(default_factory=lambda: Histogram(INTER_TOKEN_BOUNDS_S))
    """Between two steps that brought an answer tokens."""
    end_to_end_s: Histogram = field(default_factory=lambda: Histogram(END_TO_END_BOUNDS_S))
    """Submit to end, of answers that ended by stop or length."""
    waits_for: WaitReason | None = None
    """What those who waited at the last step waited for: what the first of them lacks keeps all waiting."""
    on_record: Callable[[RequestRecord], object] | None = None
    """Hears the record of each answer that is over, such as `list.append`."""

    @property
    def num_open(self) -> int:
        """Answers that are waiting or running."""
        return self.num_submitted - self.ends.total()

    def submitted(self, sequence: Sequence, now: float) -> None:
        """Take note that an answer was queued at `now`."""
        sequence.timeline.submitted_s = now
        self.num_submitted += 1

    def refused(self, reason: Refusal) -> None:
        """Take note that a request was not taken."""
        self.refusals[reason] += 1

    def admitted(self, sequence: Sequence, now: float) -> None:
        """Take note that an answer got blocks at `now`; only its first admission counts.

        Its `num_cached` says how much of its prompt was reused.
        """
        timeline = sequence.timeline
        if timeline.admitted_s is not None:
            return
        timeline.admitted_s = now
        self.num_admitted += 1
        self.num_prompt_tokens += sequence.num_prompt
        self.num_hit_tokens += sequence.num_cached
        self.queue_s.observe(now - timeline.submitted_s)

    def preempted(self, sequence: Sequence) -> None:
        """Take note that an answer lost its blocks."""
        sequence.timeline.num_preemptions += 1
        self.num_preemptions += 1

    def computed(self, sequence: Sequence, num_tokens: int) -> None:
        """Take note that a step computed the next tokens of an answer, drafts included.

        Call it before `num_computed` moves: it tells which of them belong to the prompt.
        """
        timeline = sequence.timeline
        timeline.num_computed_tokens += num_tokens
        self.num_computed_tokens += num_tokens
        num_left = sequence.num_prompt - sequence.num_computed
        if num_left > 0:
            of_prompt = min(num_tokens, num_left)
            timeline.num_computed_prompt_tokens += of_prompt
            self.num_computed_prompt_tokens += of_prompt

    def tokens(self, sequence: Sequence, count: int, now: float) -> None:
        """Take note that a step brought an answer `count` >= 1 new tokens at `now`."""
        timeline = sequence.timeline
        if timeline.last_token_s is None:
            timeline.first_token_s = now
            self.ttft_s.observe(now - timeline.submitted_s)
        else:
            self.itl_s.observe(now - timeline.last_token_s)
        timeline.last_token_s = now
        timeline.num_deliveries += 1
        self.num_generated_tokens += count

    def drafted(self, sequence: Sequence, *, proposed: int, accepted: int) -> None:
        """Take note of what became of the drafts of a step."""
        sequence.timeline.num_drafted_tokens += proposed
        sequence.timeline.num_accepted_tokens += accepted
        self.num_drafted_tokens += proposed
        self.num_accepted_tokens += accepted

    def step(self, now: float) -> None:
        """Take note that a step is done, or failed, at `now`."""
        self.num_steps += 1
        self.last_step_s = now

    def finished(self, sequence: Sequence, reason: FinishReason, now: float) -> RequestRecord:
        """Take note that an answer is over at `now`, its last tokens counted; give its record."""
        timeline = sequence.timeline
        self.ends[reason] += 1
        if reason in COMPLETE:
            self.end_to_end_s.observe(now - timeline.submitted_s)
        record = RequestRecord(
            request_id=sequence.request.request_id,
            choice=sequence.choice,
            finish_reason=reason,
            submitted_s=timeline.submitted_s,
            admitted_s=timeline.admitted_s,
            first_token_s=timeline.first_token_s,
            last_token_s=timeline.last_token_s,
            finished_s=now,
            num_prompt_tokens=sequence.num_prompt,
            num_generated_tokens=sequence.num_generated,
            num_deliveries=timeline.num_deliveries,
            num_cached_tokens=sequence.num_cached,
            num_computed_tokens=timeline.num_computed_tokens,
            num_computed_prompt_tokens=timeline.num_computed_prompt_tokens,
            num_preemptions=timeline.num_preemptions,
            num_drafted_tokens=timeline.num_drafted_tokens,
            num_accepted_tokens=timeline.num_accepted_tokens,
        )
        if self.on_record is not None:
            self.on_record(record)
        return record
