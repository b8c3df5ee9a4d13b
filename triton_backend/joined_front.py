"""One front that has joined an engine host: what it asked for, and what it hears.

One thread reads and one writes, so neither a slow front nor a long prompt keeps the engine waiting. A request is
open from `Submit` to its last message; when the front is gone, its open requests are cancelled.
"""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from builder.errors import RequestError, UnavailableError
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
    RefusalKind,
    Refused,
    Submit,
)
from triton_backend.news import news_of
from triton_backend.reasons import Refusal
from triton_backend.reception import Reception, num_characters
from triton_backend.request import Delta, FinishReason, Request
from triton_backend.text_queue import TextQueue, WaitingText
from triton_backend.worker import Worker

logger = logging.getLogger(__name__)

MAX_BACKLOG = 4096
"""Messages that may wait for a front that does not read: minutes of steps, and then it is as good as gone."""

LATE = "the deadline passed before the request was read."

Outgoing = msgspec.Struct | list[Delta]


@dataclass(frozen=True, slots=True)
class Service:
    """What a host offers once its engine is loaded."""

    hello: Hello
    model: LoadedModel
    worker: Worker
    reception: Reception
    prompts: TextQueue
    """To be encoded, by threads of its own."""
    constraints: TextQueue
    """To be compiled, by others: those of one client keep no prompt waiting."""

    @property
    def num_preparing(self) -> int:
        """Requests on their way to the worker."""
        return len(self.prompts) + len(self.constraints)


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
        self._preparing: set[int] = set()
        """Open requests whose prompt is not encoded yet, or whose constraint not compiled; the worker does not know them."""
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
            if submit.id in self._preparing or submit.id in self._submitted:
                raise LinkError("a front used the id of an open request")
            self._preparing.add(submit.id)
        prompt = WaitingText(
            num_characters(submit),
            lambda: self._encode(submit),
            lambda: self._give_up(submit.id),
            submit.deadline_s,
        )
        if full := self._service.prompts.put((self._number, submit.id), prompt):
            self._refuse(submit.id, RefusalKind.UNAVAILABLE, Refusal.PROMPT_QUEUE_FULL, full)

    def _answer_ping(self) -> None:
        """Let the worker answer; while it owes an answer already, say since when."""
        pinged_s = self._pinged_s
        if pinged_s is not None:
            self._outbox.put(Busy(time.monotonic() - pinged_s))
            return
        self._pinged_s = time.monotonic()
        self._service.worker.inquire(self._tell_state)

    def _tell_state(self, pong: Pong) -> None:
        num_waiting = pong.num_waiting + self._service.num_preparing
        self._outbox.put(msgspec.structs.replace(pong, num_waiting=num_waiting))
        self._pinged_s = None

    def _encode(self, submit: Submit) -> None:
        """Encode a prompt; then the request is prepared at once, or waits until its constraint is compiled."""
        reception = self._service.reception
        with self._answering_for(submit.id):
            request = reception.request_of(f"{self._number}/{submit.id}", submit)
            if not reception.has_to_compile(request):
                self._hand_over(submit.id, request)
                return
            constraint = WaitingText(
                num_characters(submit),
                lambda: self._compile(submit.id, request),
                lambda: self._give_up(submit.id),
                submit.deadline_s,
                request.tenant,
            )
            if full := self._service.constraints.put((self._number, submit.id), constraint):
                kind, reason = RefusalKind.UNAVAILABLE, Refusal.CONSTRAINT_QUEUE_FULL
                self._refuse(submit.id, kind, reason, full)

    def _compile(self, number: int, request: Request) -> None:
        with self._answering_for(number):
            self._hand_over(number, request)

    def _hand_over(self, number: int, request: Request) -> None:
        """Prepare a request and hand it to the worker, unless it was cancelled."""
        if number not in self._preparing:
            return
        prepared = self._service.reception.prepare(request)
        with self._lock:
            if number in self._preparing:
                self._preparing.remove(number)
                self._submitted.add(number)
                self._service.worker.submit(prepared)

    @contextlib.contextmanager
    def _answering_for(self, number: int) -> Iterator[None]:
        """Refuse a request that can't be prepared."""
        try:
            yield
        except UnavailableError as error:
            self._refuse(number, RefusalKind.UNAVAILABLE, Refusal.BUSY, str(error))
        except RequestError as error:
            self._refuse(number, RefusalKind.INVALID, Refusal.INVALID, str(error))
        except BaseException as failure:  # noqa: BLE001 - a panic inside the tokenizer is no Exception
            message = f"reading the request failed with {type(failure).__name__}."
            logger.error("%s", message)  # noqa: TRY400 - a traceback may quote the prompt
            self._refuse(number, RefusalKind.INTERNAL, Refusal.INTERNAL, message)

    def _refuse(self, number: int, kind: RefusalKind, reason: Refusal, message: str) -> None:
        """Refuse a request that the worker does not know, and let it be counted."""
        with self._lock:
            if number not in self._preparing:
                return
            self._preparing.remove(number)
        self._service.worker.note_refusal(reason)
        self._outbox.put(Refused(number, kind, message))

    def _cancel(self, number: int) -> None:
        if not self._end_preparing(number, FinishReason.CANCELLED):
            self._service.worker.cancel(f"{self._number}/{number}")
        self._drop(number)

    def _drop(self, number: int) -> None:
        for texts in (self._service.prompts, self._service.constraints):
            texts.drop((self._number, number))

    def _give_up(self, number: int) -> None:
        self._end_preparing(number, FinishReason.TIMEOUT, LATE)

    def _end_preparing(self, number: int, reason: FinishReason, error: str | None = None) -> bool:
        """End a request that the worker does not know yet; tell whether it is one."""
        with self._lock:
            if number not in self._preparing:
                return False
            self._preparing.remove(number)
        news = News(number, (), "", (), 0, 0, finish_reason=reason, error=error, is_last=True)
        self._outbox.put(Deltas((news,)))
        return True

    def _forget_all(self) -> None:
        with self._lock:
            for number in self._preparing:
                self._drop(number)
            self._preparing.clear()
            for number in self._submitted:
                self._service.worker.cancel(f"{self._number}/{number}")
        self.end()

    def _write(self) -> None:
        """Send what is in the outbox, one frame per item, until the end."""
        try:
            while (item := self._outbox.get()) is not None:
                message = self._told(item) if isinstance(item, list) else item
                self._link.send(message)
        except LinkError:
            pass  # The reader sees the end of the link too.
        except Exception as error:  # noqa: BLE001 - only this front is concerned
            log_failure(logger, "news could not be sent", error)
        finally:
            # A front that hears no more must know, or its clients wait for ever.
            self._link.close()

    def _told(self, deltas: list[Delta]) -> Deltas:
        token_bytes = self._service.model.tokenizer.token_bytes
        return Deltas(
            tuple(news_of(each, _number_of(each.request_id), token_bytes) for each in deltas)
        )


def front_number(request_id: str) -> int:
    """Give the number of the front that an engine's request belongs to."""
    return int(request_id.partition("/")[0])


def _number_of(request_id: str) -> int:
    """Give the front's own number of an engine's request."""
    return int(request_id.partition("/")[2])
