"""The engine loop: plan, pack, execute, sample, commit. Single-threaded, and without I/O.

Requests come in by `submit`, news go out as the deltas of `step`. The engine owns its sequences and
their blocks; the executor is lent to it. Each choice of a request that is submitted ends exactly once: in a
delta of `step`, or in one that `cancel` gives.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from builder.errors import QueueFullError, RequestError, UnavailableError
from builder.targets.executor import Executor
from triton_backend.commit import commit, cut_off
from triton_backend.config import EngineConfig
from triton_backend.engine_metrics import EngineMetrics
from triton_backend.failures import describe, log_failure
from triton_backend.intake import Intake, fresh_seed
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.domains import CommonPrefixes
from triton_backend.kv.events import EventStream
from triton_backend.kv.pool import BlockPool
from triton_backend.plan import StepPlan
from triton_backend.reasons import Refusal
from triton_backend.request import Delta, FinishReason, Request, TokenLogprobs
from triton_backend.rows import Drawn
from triton_backend.sampling.constraint import begin_masks
from triton_backend.sampling.logprobs import asked_logprobs
from triton_backend.sampling.sampler import Sampler
from triton_backend.scheduler import Scheduler
from triton_backend.sequence import Sequence
from triton_backend.step import pack
from triton_backend.structured.mask import MaskProvider
from triton_backend.text import AnswerId, NoText, TextStage

logger = logging.getLogger(__name__)


class Engine:
    """Serves requests in flight: they join and leave between steps."""

    def __init__(  # noqa: PLR0913 - what it works with, each named by the caller
        self,
        executor: Executor,
        *,
        end_token_ids: Iterable[int],
        text_stage: TextStage | None = None,
        mask_provider: MaskProvider | None = None,
        draw_seed: Callable[[], int] = fresh_seed,
        clock: Callable[[], float] = time.monotonic,
        config: EngineConfig | None = None,
    ) -> None:
        """Start idle. `end_token_ids` are the artifact's; `clock` gives seconds that never go back.

        Without a text stage all text is empty, without a mask provider constraints are refused.

        Raises:
            ArtifactError: an end token id is not in the executor's vocabulary.
            UserError: a setting can't be used.
        """
        self.config = config or EngineConfig()
        self.metrics = EngineMetrics()
        self.events = EventStream()
        """What becomes of cached blocks."""
        cache = BlockCache(
            BlockPool(executor.limits.num_blocks, executor.kv.block_size),
            clock=clock,
            ttl_s=self.config.cache_ttl_s,
            events=self.events,
            common=CommonPrefixes(self.config.common_prefixes),
        )
        self.scheduler = Scheduler(executor.limits, cache, config=self.config, clock=clock)
        self._intake = Intake(
            executor.limits,
            cache,
            vocab_size=executor.vocab_size,
            end_token_ids=end_token_ids,
            draw_seed=draw_seed,
            mask_provider=mask_provider,
        )
        self._executor = executor
        self._text_stage = NoText() if text_stage is None else text_stage
        self._sampler = Sampler(
            vocab_size=executor.vocab_size, num_candidates=self.config.num_candidates
        )
        self._clock = clock
        self._requests: dict[str, list[Sequence]] = {}
        """The choices that are not over."""
        self._deadlines: dict[Sequence, float] = {}

    @property
    def has_work(self) -> bool:
        """Whether a further step would do anything."""
        return bool(self._requests)

    @property
    def rest_s(self) -> float | None:
        """Seconds until a step has something to do, if nothing is submitted until then; None if it never has."""
        return 0.0 if self._requests else self.scheduler.cache.rest_s

    @property
    def num_running(self) -> int:
        """Answers that hold blocks."""
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Answers that were not admitted yet, or lost their blocks to older ones."""
        return len(self.scheduler.waiting)

    def prepare(self, request: Request) -> Request:
        """Do what of a submit may take long; give the request to submit. It alone may run on any thread.

        Raises:
            UnavailableError: the machine is too busy to compile its constraint; it may be tried again.
            RequestError: it can never be served as it stands.
        """
        if request.groundwork is not None:
            return request
        self._sampler.check(request.params)
        groundwork = self._intake.groundwork_of(request, self.config, self._text_stage)
        return replace(request, groundwork=groundwork)

    def submit(self, request: Request) -> None:
        """Take a request; its first delta comes when it has been admitted and computed.

        One that comes from `prepare` costs little, however long its prompt and whatever it asks for.

        Raises:
            QueueFullError: too many wait already; it may be tried again.
            RequestError: the id is in use, or the request can never be served as it stands.
        """
        try:
            siblings = self._open(request)
        except QueueFullError:
            self.metrics.refused(Refusal.QUEUE_FULL)
            raise
        except UnavailableError:
            self.metrics.refused(Refusal.BUSY)
            raise
        except RequestError:
            self.metrics.refused(Refusal.INVALID)
            raise
        except Exception:
            self.metrics.refused(Refusal.INTERNAL)
            raise
        self._requests[request.request_id] = siblings
        now = self._clock()
        for sequence in siblings:
            self.metrics.submitted(sequence, now)
            self.scheduler.add(sequence)
            if request.deadline_s is not None:
                self._deadlines[sequence] = request.deadline_s

    def cancel(self, request_id: str) -> list[Delta]:
        """End all choices of a request now, waiting or running, and free their blocks; none if it is over."""
        siblings = list(self._requests.get(request_id, ()))
        return [self._cut_off(sequence, FinishReason.CANCELLED) for sequence in siblings]

    def erase_domain(self, domain: bytes) -> int:
        """Forget the cached blocks of a domain, and count them. Its requests go on, and leave none behind."""
        for siblings in self._requests.values():
            for sequence in siblings:
                if sequence.request.domain == domain:
                    sequence.chain.close()
        return self.scheduler.cache.erase(domain)

    def step(self) -> list[Delta]:
        """Compute one step; give the news of each answer that got tokens or ended.

        A failure of the executor ends every running answer with an error. Waiting ones and later
        ones are served if the executor works again.
        """
        late = self._end_late()
        if not self._requests:
            self.scheduler.cache.expire()
            return late
        plan = self.scheduler.plan()
        self._count(plan)
        try:
            token_ids, logprobs = self._compute(plan)
        except Exception as failure:  # noqa: BLE001 - told to all whom it concerns
            log_failure(logger, f"a step of {len(plan.scheduled)} sequences failed", failure)
            return late + self._fail_running(failure)
        except BaseException:
            self.scheduler.discard()
            raise
        deltas = commit(plan, token_ids, text_stage=self._text_stage, logprobs=logprobs)
        self.scheduler.settle(plan)
        return late + self._tell(plan, deltas)

    def _open(self, request: Request) -> list[Sequence]:
        """Make the sequences of a request and begin their text."""
        request_id = request.request_id
        if request_id in self._requests:
            raise RequestError(f"request_id {request_id!r} is in use; choose another.")
        self.scheduler.check_room(request)
        request = self.prepare(request)
        siblings = self._intake.sequences_of(request, self.config)
        begun: list[AnswerId] = []
        try:
            for sequence in siblings:
                self._text_stage.start(sequence.answer_id, request)
                begun.append(sequence.answer_id)
        except BaseException:
            for answer_id in begun:
                self._text_stage.finish(answer_id)
            raise
        return siblings

    def _count(self, plan: StepPlan) -> None:
        """Take a plan into the metrics; before it is committed, as they look at what was computed before."""
        now = self._clock()
        self.metrics.waits_for = plan.waits_for
        for sequence in plan.preempted:
            self.metrics.preempted(sequence)
        for sequence in plan.admitted:
            self.metrics.admitted(sequence, now)
        for share in plan.scheduled:
            self.metrics.computed(share.sequence, share.num_tokens)

    def _compute(self, plan: StepPlan) -> tuple[list[Drawn], dict[int, TokenLogprobs]]:
        """Run a plan on the executor; give the ids sampled for its logit rows, and asked logprobs."""
        rows = plan.rows
        tensors = pack(plan, self._executor.kv)
        begin_masks(rows)
        asks = self._sampler.asks(rows)
        result = self._executor.execute(tensors, asks)
        token_ids = self._sampler.sample(rows, asks, result)
        return token_ids, asked_logprobs(rows, token_ids, result)

    def _tell(self, plan: StepPlan, deltas: list[Delta]) -> list[Delta]:
        """Count what a step brought, and forget the answers that ended."""
        now = self._clock()
        self.metrics.step(now)
        by_answer = {share.sequence.answer_id: share for share in plan.scheduled}
        told = []
        for delta in deltas:
            share = by_answer[delta.request_id, delta.choice]
            if delta.token_ids:
                self.metrics.tokens(share.sequence, len(delta.token_ids), now)
            if share.drafted:
                pairs = zip(share.drafted, delta.token_ids, strict=False)
                accepted = sum(guess == token_id for guess, token_id in pairs)
                self._judge(share.sequence, len(share.drafted), accepted)
            told.append(self._close(share.sequence, delta) if delta.finish_reason else delta)
        return told

    def _judge(self, sequence: Sequence, proposed: int, accepted: int) -> None:
        """Take note of what became of drafts."""
        assert sequence.drafter is not None
        sequence.drafter.judge(proposed, accepted, num_known=sequence.num_known)
        self.metrics.drafted(sequence, proposed=proposed, accepted=accepted)

    def _end_late(self) -> list[Delta]:
        """End the answers whose deadline has passed."""
        if not self._deadlines:
            return []
        now = self._clock()
        late = [sequence for sequence, until in self._deadlines.items() if until <= now]
        return [
            self._cut_off(
                sequence,
                FinishReason.TIMEOUT,
                f"the deadline passed after {sequence.num_generated} generated tokens.",
            )
            for sequence in late
        ]

    def _fail_running(self, failure: Exception) -> list[Delta]:
        """End every running answer with an error: a failed step leaves their KV in doubt."""
        self.metrics.step(self._clock())
        error = f"the engine failed: {describe(failure)}"
        return [
            self._cut_off(sequence, FinishReason.ERROR, error)
            for sequence in self.scheduler.discard()
        ]

    def _cut_off(self, sequence: Sequence, reason: FinishReason, error: str | None = None) -> Delta:
        return self._close(sequence, cut_off(sequence, reason, self._text_stage, error))

    def _close(self, sequence: Sequence, delta: Delta) -> Delta:
        """Forget an answer that is over, and free its blocks; give its last delta."""
        assert delta.finish_reason is not None
        self.metrics.finished(sequence, delta.finish_reason, self._clock())
        self.scheduler.remove(sequence)
        self._deadlines.pop(sequence, None)
        sequence.siblings.remove(sequence)
        if sequence.siblings:
            return delta
        del self._requests[sequence.request.request_id]
        return delta._replace(is_last=True)
