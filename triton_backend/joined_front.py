"""One front that has joined an engine host: what it asked for, and what it hears.

One thread reads and one writes, so neither a slow front nor a long prompt keeps the engine waiting. A request is
open from `Submit` to its last message; when the front is gone, its open requests are cancelled.
"""

import logging
import queue
import threading
import time
from dataclasses import dataclass

import msgspec

from builder.errors import RequestError
from triton_backend.failures import log_failure
from triton_backend.link import Link, LinkError
from triton_backend.loading import LoadedModel
from triton_backend.messages import (
    Busy,
    Cancel,
    Deltas,
    FromFront,
    Hello,
    Join,
    Leave,
    News,
    Ping,
    Pong,
    Prompt,
    RefusalKind,
    Refused,
    Segments,
    Submit,
    TokenIds,
)
from triton_backend.prompt_queue import PromptQueue, WaitingPrompt
from triton_backend.reception import Reception
from triton_backend.request import Delta, FinishReason
from triton_backend.worker import Worker

logger = logging.getLogger(__name__)

MAX_BACKLOG = 4096
"""Messages that may wait for a front that does not read: minutes of steps, and then it is as good as gone."""

LATE = "the deadline passed before the prompt was encoded."

Outgoing = msgspec.Struct | list[Delta]


@dataclass(frozen=True, slots=True)
class Service:
    """What a host offers once its engine is loaded."""

    hello: Hello
    model: LoadedModel
    worker: Worker
    prompts: PromptQueue
    """Served by threads of its own."""
    reception: Reception


class JoinedFront:
    """A front's link and its open requests."""

    def __init__(self, number: int, link: Link[FromFront], service: Service) -> None:
        """Begin without requests; `number` tells them from those of other fronts."""
        self._number = number
        self._link = link
        self._service = service
        self._outbox: queue.SimpleQueue[Outgoing | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, daemon=True)
        self._lock = threading.Lock()
        self._encoding: set[int] = set()
        """Open requests whose prompt is not encoded yet; the worker does not know them."""
        self._submitted: set[int] = set()
        """Open requests that the worker knows."""
        self._pinged_s: float | None = None
        """When the ping came that the worker has not answered yet."""

    def serve(self) -> bool:
        """Do what the front says until its link ends; tell whether it took its leave.

        Raises:
            LinkError: it does not keep the form.
        """
        self._writer.start()
        self._outbox.put(self._service.hello)
        try:
            while (message := self._link.receive()) is not None:
                match message:
                    case Submit():
                        self._begin(message)
                    case Cancel(number):
                        self._cancel(number)
                    case Ping():
                        self._answer_ping()
                    case Leave():
                        return True
                    case Join():
                        raise LinkError("a front joined twice")
            return False
        finally:
            self._forget_all()

    def hear(self, deltas: list[Delta]) -> None:
        """Take the news of a step about requests of this front; never blocks."""
        for delta in deltas:
            if delta.is_last:
                with self._lock:
                    self._submitted.discard(_number_of(delta.request_id))
        self._outbox.put(deltas)
        if self._outbox.qsize() > MAX_BACKLOG:
            logger.warning("front %d does not read; its link is cut", self._number)
            self._link.close()

    def refuse(self, request_id: str, kind: RefusalKind, message: str) -> None:
        """Take note that the worker refused a request of this front."""
        number = _number_of(request_id)
        with self._lock:
            self._submitted.discard(number)
        self._outbox.put(Refused(number, kind, message))

    def end(self) -> None:
        """End the link when all that was heard so far has been sent."""
        self._outbox.put(None)

    def wait_until_ended(self, timeout_s: float) -> None:
        """Wait for the end of the link, after `end`, but cut it after a time."""
        self._writer.join(timeout_s)
        self._link.close()

    def _begin(self, submit: Submit) -> None:
        with self._lock:
            if submit.id in self._encoding or submit.id in self._submitted:
                raise LinkError("a front used the id of an open request")
            self._encoding.add(submit.id)
        prompt = WaitingPrompt(
            _length(submit.prompt),
            lambda: self._encode(submit),
            lambda: self._give_up(submit.id),
            submit.deadline_s,
        )
        full = self._service.prompts.put((self._number, submit.id), prompt)
        if full:
            self._refuse_encoding(submit.id, RefusalKind.UNAVAILABLE, full)

    def _answer_ping(self) -> None:
        """Let the worker answer; while it owes an answer already, say since when."""
        pinged_s = self._pinged_s
        if pinged_s is not None:
            self._outbox.put(Busy(time.monotonic() - pinged_s))
            return
        self._pinged_s = time.monotonic()
        self._service.worker.inquire(self._tell_state)

    def _tell_state(self, pong: Pong) -> None:
        num_waiting = pong.num_waiting + len(self._service.prompts)
        self._outbox.put(msgspec.structs.replace(pong, num_waiting=num_waiting))
        self._pinged_s = None

    def _encode(self, submit: Submit) -> None:
        """Encode a prompt and hand the request to the worker, unless it was cancelled."""
        if submit.id not in self._encoding:
            return
        try:
            request = self._service.reception.request_of(f"{self._number}/{submit.id}", submit)
        except RequestError as error:
            self._refuse_encoding(submit.id, RefusalKind.INVALID, str(error))
            return
        except BaseException as failure:  # noqa: BLE001 - a panic inside the tokenizer is no Exception
            message = f"encoding the prompt failed with {type(failure).__name__}."
            logger.error("%s", message)  # noqa: TRY400 - a traceback may quote the prompt
            self._refuse_encoding(submit.id, RefusalKind.INTERNAL, message)
            return
        with self._lock:
            if submit.id in self._encoding:
                self._encoding.remove(submit.id)
                self._submitted.add(submit.id)
                self._service.worker.submit(request)

    def _refuse_encoding(self, number: int, kind: RefusalKind, message: str) -> None:
        with self._lock:
            if number not in self._encoding:
                return
            self._encoding.remove(number)
        self._outbox.put(Refused(number, kind, message))

    def _cancel(self, number: int) -> None:
        if not self._end_encoding(number, FinishReason.CANCELLED):
            self._service.worker.cancel(f"{self._number}/{number}")
        self._service.prompts.drop((self._number, number))

    def _give_up(self, number: int) -> None:
        self._end_encoding(number, FinishReason.TIMEOUT, LATE)

    def _end_encoding(self, number: int, reason: FinishReason, error: str | None = None) -> bool:
        """End a request whose prompt is not encoded yet; tell whether it is one."""
        with self._lock:
            if number not in self._encoding:
                return False
            self._encoding.remove(number)
        news = News(number, (), "", (), 0, 0, finish_reason=reason, error=error, is_last=True)
        self._outbox.put(Deltas((news,)))
        return True

    def _forget_all(self) -> None:
        with self._lock:
            for number in self._encoding:
                self._service.prompts.drop((self._number, number))
            self._encoding.clear()
            for number in self._submitted:
                self._service.worker.cancel(f"{self._number}/{number}")
        self.end()

    def _write(self) -> None:
        """Send what is in the outbox, one frame per item, until the end."""
        try:
            while (item := self._outbox.get()) is not None:
                message = Deltas(tuple(map(self._news, item))) if isinstance(item, list) else item
                self._link.send(message)
        except LinkError:
            pass  # The reader sees the end of the link too.
        except Exception as error:  # noqa: BLE001 - only this front is concerned
            log_failure(logger, "news could not be sent", error)
        finally:
            # A front that hears no more must know, or its clients wait for ever.
            self._link.close()

    def _news(self, delta: Delta) -> News:
        token_bytes = self._service.model.tokenizer.token_bytes
        return News(
            id=_number_of(delta.request_id),
            token_ids=delta.token_ids,
            text=delta.text,
            token_bytes=tuple(map(token_bytes, delta.token_ids)),
            num_prompt_tokens=delta.num_prompt_tokens,
            num_generated_tokens=delta.num_generated_tokens,
            finish_reason=delta.finish_reason,
            stop_reason=delta.stop_reason,
            error=delta.error,
            logprobs=delta.logprobs,
            top_bytes=tuple(tuple(map(token_bytes, told.top_ids)) for told in delta.logprobs),
            prompt_token_ids=delta.prompt_token_ids,
            prompt_token_bytes=tuple(map(token_bytes, delta.prompt_token_ids)),
            prompt_top_bytes=tuple(
                tuple(map(token_bytes, told.top_ids)) for told in delta.prompt_logprobs
            ),
            choice=delta.choice,
            is_last=delta.is_last,
            num_cached_tokens=delta.num_cached_tokens,
            prompt_logprobs=delta.prompt_logprobs,
        )


def _length(prompt: Prompt) -> int:
    """Give the characters or ids of a prompt."""
    match prompt:
        case TokenIds(token_ids):
            return len(token_ids)
        case Segments(segments):
            return sum(len(segment.text) for segment in segments)
    return len(prompt.text)


def front_number(request_id: str) -> int:
    """Give the number of the front that an engine's request belongs to."""
    return int(request_id.partition("/")[0])


def _number_of(request_id: str) -> int:
    """Give the front's own number of an engine's request."""
    return int(request_id.partition("/")[2])
