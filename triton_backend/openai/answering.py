"""From asks to an HTTP response: whole, or as a stream of events while the answer grows.

What fails before the first delta is an HTTP error in both forms. What fails later ends a stream with an
event that holds the error object, and without [DONE].
"""

from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from triton_backend.openai import sse
from triton_backend.openai.asks import Ask
from triton_backend.openai.connection import JSON, while_connected
from triton_backend.openai.deltas import AnswerDelta
from triton_backend.openai.errors import ApiError
from triton_backend.openai.face import Face
from triton_backend.openai.model import Model
from triton_backend.openai.prompts import Deltas, telling_prompts
from triton_backend.openai.replies import PromptLogprobs, Reply, Usage, usage_of


class Shape(Protocol):
    """How one endpoint words its answers."""

    model: Model
    id_prefix: str
    whole_object: str
    chunk_object: str

    def opening(self) -> Sequence[Any]:
        """Give the choices of a first chunk; none for no such chunk."""

    def pieces(self, index: int, delta: AnswerDelta) -> Iterable[Any]:
        """Give the choices that a delta becomes, each in a chunk of its own."""

    def whole(self, index: int, delta: AnswerDelta) -> Any:
        """Give the choice of an answer that came in one delta."""

    def prompt_logprobs(self, delta: AnswerDelta) -> PromptLogprobs | UnsetType:
        """Give what is told of the prompt beside the choices, given the first answer to it."""


@dataclass(frozen=True, slots=True)
class Job:
    """A request that was understood."""

    id: str
    created: int
    asks: Sequence[Ask]
    shape: Shape
    includes_usage: bool
    """Whether a stream ends with a chunk of usage; a whole answer has it always."""
    tenant: str
    """Whose request it is."""

    def deltas(self, face: Face) -> Deltas:
        """Let `face` answer."""
        deltas = face.answer(self.shape.model.name, self.id, self.asks, tenant=self.tenant)
        is_told = self.asks[0].params.prompt_logprobs is not None
        return telling_prompts(deltas) if is_told else deltas

    def reply(self, kind: str, choices: Sequence[Any], usage: Usage | None) -> Reply:
        """Put choices into an object of this request; None leaves `usage` out, or null in streams."""
        return Reply(
            id=self.id,
            object=kind,
            created=self.created,
            model=self.shape.model.name,
            system_fingerprint=self.shape.model.fingerprint,
            choices=choices,
            usage=usage if usage is not None or self.includes_usage else UNSET,
        )


class WholeAnswer:
    """An ASGI response that is sent when all answers are finished."""

    def __init__(self, face: Face, job: Job) -> None:
        """Answer `job` through `face`."""
        self._face = face
        self._job = job

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Collect the answers and send them.

        Raises:
            ApiError: one of them was refused or failed; nothing was sent.
            ClientDisconnect: the client went away; all were cancelled.
        """
        job = self._job
        answers = dict(await while_connected(receive, self._collected()))
        choices = [job.shape.whole(index, answers[index]) for index in sorted(answers)]
        reply = msgspec.structs.replace(
            job.reply(job.shape.whole_object, choices, usage_of(list(answers.values()))),
            prompt_logprobs=job.shape.prompt_logprobs(answers[0]),
        )
        await Response(msgspec.json.encode(reply), media_type=JSON)(scope, receive, send)

    async def _collected(self) -> list[tuple[int, AnswerDelta]]:
        async with aclosing(self._job.deltas(self._face)) as deltas:
            return [each async for each in deltas]


class StreamedAnswer:
    """An ASGI response of events, sent as the deltas come."""

    def __init__(self, face: Face, job: Job) -> None:
        """Answer `job` through `face`."""
        self._face = face
        self._job = job

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        """Send the answers as they grow; all are cancelled when the client goes away.

        Raises:
            ApiError: one of them was refused or failed before its first delta; nothing was sent.
        """
        try:
            await while_connected(receive, self._send_events(send))
        except ClientDisconnect:
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, send: Send) -> None:
        async with aclosing(self._job.deltas(self._face)) as deltas:
            events = self._events(deltas)
            first = await anext(events)
            await send({"type": "http.response.start", "status": 200, "headers": sse.HEADERS})
            await send(_body(first))
            try:
                async for event in events:
                    await send(_body(event))
            except ApiError as error:
                await send(_body(sse.framed(error.body())))

    async def _events(self, deltas: Deltas) -> AsyncGenerator[bytes, None]:
        job, finals = self._job, []
        opening = job.shape.opening()
        async for index, delta in deltas:
            for choice in (*opening, *job.shape.pieces(index, delta)):
                yield sse.event(job.reply(job.shape.chunk_object, [choice], None))
            opening = ()
            if delta.finish_reason is not None:
                finals.append(delta)
        if job.includes_usage:
            yield sse.event(job.reply(job.shape.chunk_object, [], usage_of(finals)))
        yield sse.DONE


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}
