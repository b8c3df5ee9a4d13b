"""What a front submits, made into a request of the engine: all that costs time, before the engine's thread sees it.

Here prompts are encoded, constraints compiled and callers believed or not. Whoever has no valid tag is in no domain:
its request reuses nobody's blocks, and nobody reuses its own.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from builder.errors import RequestError
from triton_backend.config import PolicyName
from triton_backend.kv.domains import derive_domain
from triton_backend.messages import ControlText, PlainText, Prompt, Segments, Submit, TokenIds
from triton_backend.request import (
    MAX_BAD_WORD_TOKENS,
    MAX_BAD_WORDS,
    MAX_STOP_CHARACTERS,
    Request,
    SamplingParams,
)
from triton_backend.tenancy import verify

MAX_WORDS = MAX_BAD_WORDS // 2
"""Each may become two runs of ids."""


class Model(Protocol):
    """What a model knows of text. Threads may share it."""

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Give the ids of a prompt."""
        ...

    def token_runs(self, word: str) -> tuple[tuple[int, ...], ...]:
        """Give the ids that a word is written in, where a text begins and where it goes on."""
        ...

    def has_to_compile(self, request: Request) -> bool:
        """Tell whether `prepare` has to compile a constraint that is not known yet."""
        ...

    def prepare(self, request: Request) -> Request:
        """Do what of a submit may take long, and give the request to submit."""
        ...


class Reception:
    """Receives requests for one engine, on any thread."""

    def __init__(
        self,
        model: Model,
        *,
        policy: str,
        secret: bytes | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Take the deployment's secret, without which nobody is believed; `clock` gives seconds since the epoch."""
        self._model = model
        self._policy = policy
        self._secret = secret
        self._clock = clock

    def request_of(self, request_id: str, submit: Submit) -> Request:
        """Give the request that a front submits, under an id of the host's; `prepare` is next.

        Raises:
            RequestError: its prompt can't be encoded, or something in it is wrong or not supported here.
        """
        # First: encoding a prompt may take long, and a tag that came in time must not expire meanwhile.
        tenant = self._tenant_of(submit)
        terms = submit.terms
        if terms.priority and self._policy != PolicyName.PRIORITY:
            raise RequestError(
                f"priority has no effect under the policy {self._policy} of this deployment; leave it out."
            )
        return Request(
            request_id,
            self._model.encode(submit.prompt),
            self._params(submit),
            domain=self._domain(tenant, terms.cache_salt),
            store=terms.store,
            priority=terms.priority,
            tenant=tenant or "",
            deadline_s=submit.deadline_s,
        )

    def has_to_compile(self, request: Request) -> bool:
        """Tell whether `prepare` takes long because of a constraint that nobody had before."""
        return self._model.has_to_compile(request)

    def prepare(self, request: Request) -> Request:
        """Make ready for the engine what `request_of` gave.

        Raises:
            UnavailableError: the machine is too busy to compile its constraint.
            RequestError: it can never be served as it stands.
        """
        return self._model.prepare(request)

    def _tenant_of(self, submit: Submit) -> str | None:
        """Give the tenant whose tag the request has; None if nobody vouches for it."""
        claim = submit.terms.claim
        if claim is None or self._secret is None:
            return None
        is_right = verify(
            self._secret,
            claim.tag,
            tenant=claim.tenant,
            request_id=submit.request_id,
            expires_s=claim.expires_s,
            now_s=self._clock(),
        )
        return claim.tenant if is_right else None

    def _domain(self, tenant: str | None, salt: str) -> bytes | None:
        if tenant is None or self._secret is None:
            return None
        return derive_domain(self._secret, tenant, salt)

    def _params(self, submit: Submit) -> SamplingParams:
        """Give the parameters with bad words as ids."""
        params, words = submit.params, submit.terms.bad_words
        if not words:
            return params
        if len(words) > MAX_WORDS:
            raise RequestError(f"bad_words must hold at most {MAX_WORDS} words; got {len(words)}.")
        for index, word in enumerate(words):
            if not 1 <= len(word) <= MAX_STOP_CHARACTERS:
                raise RequestError(
                    f"bad_words[{index}] must have 1 to {MAX_STOP_CHARACTERS} characters; got {len(word)}."
                )
        runs = tuple(run for place, word in enumerate(words) for run in self._runs(place, word))
        return replace(params, bad_words=params.bad_words + runs)

    def _runs(self, place: int, word: str) -> tuple[tuple[int, ...], ...]:
        """Give the ids of a bad word; refuse it by its place among the words, which is what the client knows."""
        runs = self._model.token_runs(word)
        for run in runs:
            if len(run) > MAX_BAD_WORD_TOKENS:
                raise RequestError(
                    f"bad_words[{place}] must have 1 to {MAX_BAD_WORD_TOKENS} ids; got {len(run)}."
                )
        return runs


def num_characters(submit: Submit) -> int:
    """Give the characters of all texts of a request, or the ids of its prompt."""
    params = submit.params
    texts = [*params.stop, *submit.terms.bad_words, *params.logits_processors]
    if params.constraint is not None:
        texts.append(params.constraint.text)
    num_others = sum(map(len, texts))
    match submit.prompt:
        case TokenIds(token_ids):
            return num_others + len(token_ids)
        case Segments(segments):
            return num_others + sum(len(segment.text) for segment in segments)
        case PlainText(text) | ControlText(text):
            return num_others + len(text)
