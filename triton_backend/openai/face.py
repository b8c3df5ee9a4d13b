"""Client of the `forerun` face: one gRPC call carries all prompts of one HTTP request.

Leaving the call early, by an exception or by closing the iterator, cancels every answer in it.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Self

import grpc
from tritonclient.grpc import InferRequestedOutput
from tritonclient.grpc.aio import InferenceServerClient
from tritonclient.utils import InferenceServerException

from triton_backend.openai.asks import Ask, tensors_of
from triton_backend.openai.deltas import outputs_of, read_delta
from triton_backend.openai.errors import ended, failed, internal
from triton_backend.openai.prompts import Deltas
from triton_backend.openai.vouching import Vouching

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
HANGS_S = 5.0
"""What a server gets to say that the deadline has passed; the engine sees to it, unless something hangs."""


class Face:
    """A connection to Triton, for one event loop."""

    def __init__(self, address: str, deadline_s: float, vouching: Vouching) -> None:
        """Connect, in the background, to the gRPC service at `address`; answers end after `deadline_s`."""
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
    ) -> Deltas:
        """Yield the deltas of all answers as they come, each with its index: all choices of an ask, then of the next.

        Raises:
            ApiError: one of the asks was refused or failed, or the time was up; the others end with it.
        """
        by_id = {f"{request_id}-{index}": ask for index, ask in enumerate(asks)}
        indices = _indices(by_id)
        requests = self._requests(model, by_id, tenant)
        # Not with the header triton_grpc_error: it would give errors a status, and can end the server.
        timeout_s = self._deadline_s + HANGS_S
        responses = self._client.stream_infer(requests, stream_timeout=timeout_s)
        unfinished = set(indices)
        try:
            async for result, error in responses:
                if error is not None:
                    raise failed(error.message(), names=asks[0].names)
                answer_id = result.get_response().id
                ask = by_id[answer_id]
                delta = read_delta(result, ask.params)
                if delta.finish_reason is not None:
                    unfinished.remove((answer_id, delta.choice))
                told = delta if ask.wants_answer else delta.without_answer()
                yield indices[answer_id, delta.choice], told
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
            yield {
                "model_name": model,
                "request_id": request_id,
                "inputs": tensors_of(ask),
                "outputs": [InferRequestedOutput(name) for name in outputs_of(ask.params)],
                "timeout": round(self._deadline_s * 1e6),
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
