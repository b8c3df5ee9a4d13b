"""The engine loop: plan, pack, execute, sample, commit. Single-threaded, and without I/O.

Requests come in by `submit`, news go out as the deltas of `step`. The engine owns its sequences and
their blocks; the executor is lent to it. Each request that is submitted ends exactly once: in a delta
of `step`, or in the one `cancel` gives.
"""

import logging
import secrets
import traceback
from collections.abc import Callable, Iterable

from builder.errors import ArtifactError, ForerunError, RequestError
from builder.targets.executor import Executor
from triton_backend.admission import check_token_ids, resolve_max_known, resolve_stopping_ids
from triton_backend.commit import commit, cut_off
from triton_backend.config import EngineConfig
from triton_backend.kv.pool import BlockPool
from triton_backend.request import Delta, FinishReason, Request, TokenLogprobs
from triton_backend.sampling.logprobs import asked_logprobs
from triton_backend.sampling.sampler import Sampler
from triton_backend.scheduler import Scheduler, StepPlan
from triton_backend.sequence import Sequence
from triton_backend.step import pack
from triton_backend.text import NoText, TextStage

logger = logging.getLogger(__name__)


def fresh_seed() -> int:
    """Draw a seed for a request that names none."""
    return secrets.randbits(64)


class Engine:
    """Serves requests in flight: they join and leave between steps."""

    def __init__(
        self,
        executor: Executor,
        *,
        end_token_ids: Iterable[int],
        text_stage: TextStage | None = None,
        draw_seed: Callable[[], int] = fresh_seed,
        config: EngineConfig | None = None,
    ) -> None:
        """Start idle. `end_token_ids` are the artifact's; without a text stage all text is empty.

        Raises:
            ArtifactError: an end token id is not in the executor's vocabulary.
        """
        config = config or EngineConfig()
        vocab_size = executor.vocab_size
        self._executor = executor
        self._end_token_ids = frozenset(end_token_ids)
        self._text_stage = NoText() if text_stage is None else text_stage
        self._draw_seed = draw_seed
        self._sampler = Sampler(vocab_size=vocab_size, num_candidates=config.num_candidates)
        self._sequences: dict[str, Sequence] = {}
        pool = BlockPool(executor.limits.num_blocks, executor.kv.block_size)
        self.scheduler = Scheduler(executor.limits, pool, watermark=config.watermark)
        for token_id in self._end_token_ids:
            if not 0 <= token_id < vocab_size:
                raise ArtifactError(
                    f"end token id {token_id} is not in the vocabulary of {vocab_size} ids;"
                    " the tokenizer and the engine do not belong together."
                )

    @property
    def has_work(self) -> bool:
        """Whether a further step would do anything."""
        return bool(self._sequences)

    @property
    def num_running(self) -> int:
        """Requests that hold blocks."""
        return len(self.scheduler.running)

    @property
    def num_waiting(self) -> int:
        """Requests that were not admitted yet, or lost their blocks to older ones."""
        return len(self.scheduler.waiting)

    def submit(self, request: Request) -> None:
        """Take a request; its first delta comes when it has been admitted and computed.

        Raises:
            RequestError: the id is in use, or the request can never be served as it stands.
        """
        if request.request_id in self._sequences:
            raise RequestError(f"request_id {request.request_id!r} is in use; choose another.")
        vocab_size = self._executor.vocab_size
        check_token_ids("prompt_token_ids", request.prompt_token_ids, vocab_size)
        params = request.params
        sequence = Sequence(
            request=request,
            seed=self._draw_seed() if params.seed is None else params.seed,
            max_known=resolve_max_known(request, self._executor.limits, self.scheduler.pool),
            stopping_ids=resolve_stopping_ids(request, self._end_token_ids, vocab_size),
        )
        self._text_stage.start(request)
        self._sequences[request.request_id] = sequence
        self.scheduler.add(sequence)

    def cancel(self, request_id: str) -> Delta | None:
        """End a request now, waiting or running, and free its blocks. None if there is no such one."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return None
        delta = cut_off(sequence, FinishReason.CANCELLED, self._text_stage)
        self._forget(delta)
        return delta

    def step(self) -> list[Delta]:
        """Compute one step; give the news of each request that got a token or ended.

        A failure of the executor ends every running request with an error. Waiting requests and later
        ones are served if the executor works again.
        """
        if not self._sequences:
            return []
        plan = self.scheduler.plan()
        try:
            token_ids, logprobs = self._compute(plan)
        except Exception as failure:  # noqa: BLE001 - those who run fail, and others go on
            _log(plan, failure)
            deltas = self._fail_running(failure)
        else:
            deltas = commit(plan, token_ids, text_stage=self._text_stage, logprobs=logprobs)
        for delta in deltas:
            if delta.finish_reason is not None:
                self._forget(delta)
        return deltas

    def _compute(self, plan: StepPlan) -> tuple[list[int | None], dict[int, TokenLogprobs]]:
        """Run a plan on the executor; give the ids sampled for its logit rows, and asked logprobs."""
        sequences = plan.logit_sequences
        tensors = pack(plan, self._executor.kv)
        asks = self._sampler.asks(sequences)
        result = self._executor.execute(tensors, asks)
        token_ids = self._sampler.sample(sequences, asks, result)
        return token_ids, asked_logprobs(sequences, token_ids, result)

    def _fail_running(self, failure: Exception) -> list[Delta]:
        """End every running request with an error: a failed step leaves their KV in doubt."""
        known = isinstance(failure, ForerunError)
        error = f"the engine failed: {failure if known else type(failure).__name__}"
        return [
            cut_off(sequence, FinishReason.ERROR, self._text_stage, error)
            for sequence in self.scheduler.running
        ]

    def _forget(self, delta: Delta) -> None:
        """Drop the sequence of a last delta, and free its blocks."""
        self.scheduler.remove(self._sequences.pop(delta.request_id))


def _log(plan: StepPlan, failure: Exception) -> None:
    """Log where a step failed, without the message: a library's may quote token ids or text."""
    where = "".join(traceback.format_tb(failure.__traceback__))
    kind = type(failure).__name__
    logger.error("a step of %d sequences failed: %s\n%s", len(plan.scheduled), kind, where)
