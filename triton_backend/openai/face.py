"""Client of the `forerun` face: one gRPC call carries all prompts of one HTTP request.

Leaving the call early, by an exception or by closing the iterator, cancels every answer in it.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import grpc
import numpy as np
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from triton_backend.faces.forerun import FORERUN
from triton_backend.messages import NO_TERMS, Terms
from triton_backend.openai.errors import cancelled, ended, failed, internal
from triton_backend.openai.vouching import Vouching
from triton_backend.request import FinishReason, SamplingParams
from triton_backend.segments import Segment

WIRE_TYPES = {
    tensor.name: "BYTES" if tensor.data_type == "STRING" else tensor.data_type
    for tensor in FORERUN.inputs
}
"""The protocol's names of data types differ from those of configurations in this one."""
CHANNEL_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # Addresses are given as they are; a proxy named in the environment is for other traffic.
    ("grpc.enable_http_proxy", 0),
    # By default a channel waits up to two minutes before it tries a server that was away.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
READY_TIMEOUT_S = 5.0
TEXT_OUTPUTS = (
    "text",
    "finish_reason",
    "num_prompt_tokens",
    "num_generated_tokens",
    "num_cached_tokens",
    "choice",
)
FURTHER = (
    "num_choices",
    "include_stop",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
)
"""Parameters of one value that are sent where they differ from the default."""
DEFAULTS = SamplingParams()
TOKEN_OUTPUTS = ("token_ids", "token_bytes", "logprobs", "top_ids", "top_bytes", "top_logprobs")


@dataclass(frozen=True, slots=True)
class Ask:
    """One prompt to continue, and how."""

    prompt: tuple[InferInput, ...] = field(repr=False)
    params: SamplingParams
    is_streamed: bool
    terms: Terms = NO_TERMS
    constraint_field: str = "constraint"
    """What the client calls the constraint."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that stands, or could have stood, at a place of an answer."""

    token_id: int = field(repr=False)
    data: bytes = field(repr=False)
    """The bytes of text that it stands for."""
    logprob: float


@dataclass(frozen=True, slots=True)
class AnswerToken:
    """One token of an answer, and what was likeliest at its place."""

    chosen: Candidate
    top: tuple[Candidate, ...]
    """Likeliest first."""


@dataclass(frozen=True, slots=True)
class AnswerDelta:
    """News about one choice of an answer. The last one, and only that, has a `finish_reason`."""

    text: str = field(repr=False)
    finish_reason: FinishReason | None
    num_prompt_tokens: int
    num_generated_tokens: int
    """Tokens of the answer so far."""
    num_cached_tokens: int
    tokens: tuple[AnswerToken, ...] = field(repr=False)
    """The new tokens, where logprobs were asked for."""
    choice: int = 0


def text_prompt(text: str) -> tuple[InferInput, ...]:
    """Give the tensors of a plain text; the model's begin token is added by the engine host."""
    return (_tensor("text", [text.encode()]),)


def token_ids_prompt(token_ids: Sequence[int]) -> tuple[InferInput, ...]:
    """Give the tensors of a prompt that is tokens already."""
    return (_tensor("token_ids", token_ids),)


def segments_prompt(segments: Sequence[Segment]) -> tuple[InferInput, ...]:
    """Give the tensors of a rendered chat."""
    return (
        _tensor("segments", [segment.text.encode() for segment in segments]),
        _tensor("segment_kinds", [segment.kind.encode() for segment in segments]),
    )


class Face:
    """A connection to Triton, for one event loop."""

    def __init__(self, address: str, deadline_s: float, vouching: Vouching) -> None:
        """Connect, in the background, to the gRPC service at `address`; calls end after `deadline_s`."""
        self._client = InferenceServerClient(address, channel_args=CHANNEL_OPTIONS)
        self._vouching = vouching
        self._deadline_s = deadline_s

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def is_ready(self, model: str) -> bool:
        """Whether Triton says that `model` is ready; servers of 2026 and later ask its engine first."""
        try:
            ready = await self._client.is_model_ready(model, client_timeout=READY_TIMEOUT_S)
        except InferenceServerException:
            return False
        return bool(ready)

    async def answer(
        self, model: str, request_id: str, asks: Sequence[Ask], *, tenant: str
    ) -> AsyncGenerator[tuple[int, AnswerDelta], None]:
        """Yield the deltas of all answers as they come, each with its index: all choices of an ask, then of the next.

        Raises:
            ApiError: one of the asks was refused or failed, or the time was up; the others end with it.
        """
        by_id = {f"{request_id}-{index}": ask for index, ask in enumerate(asks)}
        indices = _indices(by_id)
        requests = self._requests(model, by_id, tenant)
        # Not with the header triton_grpc_error: it would give errors a status, and can end the server.
        responses = self._client.stream_infer(requests, stream_timeout=self._deadline_s)
        unfinished = set(indices)
        try:
            async for result, error in responses:
                if error is not None:
                    raise failed(error.message(), constraint_field=asks[0].constraint_field)
                answer_id = result.get_response().id
                delta = _delta(result, by_id[answer_id].params)
                if delta.finish_reason is not None:
                    unfinished.remove((answer_id, delta.choice))
                yield indices[answer_id, delta.choice], delta
        except grpc.aio.AioRpcError as error:
            raise ended(error.code()) from None
        finally:
            responses.cancel()
        if unfinished:
            raise internal()

    async def _requests(
        self, model: str, asks: Mapping[str, Ask], tenant: str
    ) -> AsyncIterator[dict[str, Any]]:
        for request_id, ask in asks.items():
            names = TEXT_OUTPUTS if ask.params.logprobs is None else TEXT_OUTPUTS + TOKEN_OUTPUTS
            yield {
                "model_name": model,
                "request_id": request_id,
                "inputs": [*ask.prompt, *_parameters(ask)],
                "outputs": [InferRequestedOutput(name) for name in names],
                "parameters": self._vouching.parameters(tenant, request_id),
            }


def _indices(asks: Mapping[str, Ask]) -> dict[tuple[str, int], int]:
    """Number the choices of all asks."""
    choices = [
        (request_id, choice)
        for request_id, ask in asks.items()
        for choice in range(ask.params.num_choices)
    ]
    return {each: index for index, each in enumerate(choices)}


def _parameters(ask: Ask) -> list[InferInput]:
    params = ask.params
    tensors = [
        _tensor("temperature", [params.temperature]),
        _tensor("top_k", [params.top_k]),
        _tensor("top_p", [params.top_p]),
        _tensor("min_tokens", [params.min_tokens]),
        _tensor("ignore_eos", [params.ignore_eos]),
        _tensor("stream", [ask.is_streamed]),
    ]
    if params.max_tokens is not None:
        tensors.append(_tensor("max_tokens", [params.max_tokens]))
    if params.seed is not None:
        tensors.append(_tensor("seed", [params.seed]))
    if params.stop:
        tensors.append(_tensor("stop", [text.encode() for text in params.stop]))
    if params.stop_token_ids:
        tensors.append(_tensor("stop_token_ids", params.stop_token_ids))
    if params.logprobs is not None:
        tensors.append(_tensor("logprobs", [params.logprobs]))
    return tensors + _further(params) + _terms(ask.terms)


def _further(params: SamplingParams) -> list[InferInput]:
    """Give the tensors of what few requests ask for; what is as by default is left out."""
    tensors = [
        _tensor(name, [getattr(params, name)])
        for name in FURTHER
        if getattr(params, name) != getattr(DEFAULTS, name)
    ]
    if params.logit_bias:
        ids, biases = zip(*params.logit_bias, strict=True)
        tensors += [_tensor("logit_bias_ids", ids), _tensor("logit_bias", biases)]
    if params.constraint is not None:
        tensors.append(_tensor("constraint_kind", [params.constraint.kind.encode()]))
        tensors.append(_tensor("constraint", [params.constraint.text.encode()]))
    return tensors


def _terms(terms: Terms) -> list[InferInput]:
    tensors = []
    if terms.priority:
        tensors.append(_tensor("priority", [terms.priority]))
    if terms.cache_salt:
        tensors.append(_tensor("cache_salt", [terms.cache_salt.encode()]))
    if terms.bad_words:
        tensors.append(_tensor("bad_words", [word.encode() for word in terms.bad_words]))
    return tensors


def _tensor(name: str, values: Sequence[Any]) -> InferInput:
    tensor = InferInput(name, [len(values)], WIRE_TYPES[name])
    tensor.set_data_from_numpy(np.array(values, dtype=triton_to_np_dtype(WIRE_TYPES[name])))
    return tensor


def _delta(result: InferResult, params: SamplingParams) -> AnswerDelta:
    reason = result.as_numpy("finish_reason")[0].decode()
    if reason == FinishReason.CANCELLED:
        raise cancelled()
    if reason == FinishReason.ERROR:
        raise internal()
    return AnswerDelta(
        text=result.as_numpy("text")[0].decode(),
        finish_reason=FinishReason(reason) if reason else None,
        num_prompt_tokens=int(result.as_numpy("num_prompt_tokens")[0]),
        num_generated_tokens=int(result.as_numpy("num_generated_tokens")[0]),
        num_cached_tokens=int(result.as_numpy("num_cached_tokens")[0]),
        tokens=() if params.logprobs is None else _tokens(result),
        choice=int(result.as_numpy("choice")[0]),
    )


def _tokens(result: InferResult) -> tuple[AnswerToken, ...]:
    columns = (result.as_numpy(name).tolist() for name in TOKEN_OUTPUTS)
    ids, data, logprobs, *top_columns = columns
    chosen = list(map(Candidate, ids, data, logprobs))
    top = list(map(Candidate, *top_columns))
    num_top = len(top) // max(len(ids), 1)  # fewer than asked for where the vocabulary is small
    return tuple(
        AnswerToken(candidate, tuple(top[i * num_top : (i + 1) * num_top]))
        for i, candidate in enumerate(chosen)
    )
