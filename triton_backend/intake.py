"""Turns a request into the sequences of its choices, or refuses it before it costs anything.

It keeps nothing of a request, and draws a seed only for one that is taken. What costs time is done in `groundwork_of`,
which may run on any thread.
"""

import secrets
from array import array
from collections.abc import Callable, Iterable

from builder.artifact.config import Limits
from builder.errors import ArtifactError, RequestError
from triton_backend.admission import check_token_ids, resolve_max_known, resolve_stopping_ids
from triton_backend.config import EngineConfig
from triton_backend.drafting import Drafter, PromptRuns
from triton_backend.groundwork import Groundwork
from triton_backend.kv.cache import BlockCache
from triton_backend.occurrences import INT32, Occurrences, distinct
from triton_backend.request import Request
from triton_backend.sequence import Sequence
from triton_backend.stops import StopStrings
from triton_backend.structured.mask import CompiledConstraint, MaskProvider
from triton_backend.text import TextStage


def fresh_seed() -> int:
    """Draw a seed for a request that names none."""
    return secrets.randbits(64)


class Intake:
    """Knows what an engine can serve."""

    def __init__(
        self,
        limits: Limits,
        cache: BlockCache,
        *,
        vocab_size: int,
        end_token_ids: Iterable[int],
        draw_seed: Callable[[], int],
        mask_provider: MaskProvider | None,
    ) -> None:
        """Take what never changes.

        Raises:
            ArtifactError: an end token id is not in the vocabulary.
        """
        self._limits = limits
        self._cache = cache
        self._vocab_size = vocab_size
        self._end_token_ids = frozenset(end_token_ids)
        self._draw_seed = draw_seed
        self._mask_provider = mask_provider
        for token_id in self._end_token_ids:
            if not 0 <= token_id < vocab_size:
                raise ArtifactError(
                    f"end token id {token_id} is not in the vocabulary of {vocab_size} ids;"
                    " the tokenizer and the engine do not belong together."
                )

    def groundwork_of(
        self, request: Request, config: EngineConfig, text_stage: TextStage
    ) -> Groundwork:
        """Make what the choices of a request share, on any thread.

        Raises:
            RequestError: the request can never be served as it stands.
        """
        prompt = request.prompt_token_ids
        check_token_ids("prompt_token_ids", prompt, self._vocab_size)
        resolve_max_known(request, self._limits, self._cache.pool)
        return Groundwork(
            array(INT32, prompt).tobytes(),
            text_stage.opens_text(prompt),
            StopStrings(request.params.stop),
            self._compiled(request),
            PromptRuns(prompt) if may_draft(request, config) else None,
            distinct(prompt) if request.params.is_penalised else None,
        )

    def sequences_of(self, request: Request, config: EngineConfig) -> list[Sequence]:
        """Give a sequence per choice of a request whose groundwork is laid, as yet without text.

        Raises:
            RequestError: the request can never be served as it stands.
        """
        params, ground = request.params, request.groundwork
        assert ground is not None, "a request was not prepared"
        max_known = resolve_max_known(request, self._limits, self._cache.pool)
        stopping_ids = resolve_stopping_ids(request, self._end_token_ids, self._vocab_size)
        choices = range(params.num_choices)
        compiled = ground.constraint
        masks = [None if compiled is None else compiled.start(stopping_ids) for _ in choices]
        seed = self._draw_seed() if params.seed is None else params.seed
        domain = request.domain if config.prefix_reuse else None
        runs, ids = ground.prompt_runs, ground.prompt_ids
        num_prompt = len(request.prompt_token_ids)
        siblings: list[Sequence] = []
        siblings.extend(
            Sequence(
                request=request,
                seed=seed,
                max_known=max_known,
                stopping_ids=stopping_ids,
                chain=self._cache.new_chain(domain),
                choice=choice,
                mask=masks[choice],
                drafter=None if runs is None else Drafter(runs),
                occurrences=None if ids is None else Occurrences(ids, num_prompt=num_prompt),
                siblings=siblings,
            )
            for choice in choices
        )
        return siblings

    def _compiled(self, request: Request) -> CompiledConstraint | None:
        """Compile the constraint of a request."""
        constraint = request.params.constraint
        if constraint is None:
            return None
        if self._mask_provider is None:
            raise RequestError("constraint is not supported by this engine; leave it out.")
        return self._mask_provider.compile(constraint)


def may_draft(request: Request, config: EngineConfig) -> bool:
    """Tell whether tokens are drafted: what a mask or a processor allows is not known ahead of the token before."""
    params = request.params
    asked = config.speculation if params.speculation is None else params.speculation
    return asked and params.constraint is None and not params.logits_processors
