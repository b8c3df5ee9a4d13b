"""Turns news into responses on one thread, which is all that Triton's queue of responses can use.

While it lags, the news of a request is merged into one response. The first response of a request waits for no
further ones of others; the order within a request is kept.
"""

import contextlib
import logging
import threading
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from triton_backend.failures import log_failure
from triton_backend.messages import News, merged
from triton_backend.protocol import Array, Ask
from triton_backend.request import FinishReason

logger = logging.getLogger(__name__)


class FailureKind(StrEnum):
    """How a request fails; Triton has a code for each."""

    INVALID = "invalid"
    UNAVAILABLE = "unavailable"
    TIMEOUT = "timeout"
    INTERNAL = "internal"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request has no answer, or no more of it."""

    kind: FailureKind
    message: str


class Call(Protocol):
    """A request as Triton hands it over, and the way back to its client."""

    @property
    def tensors(self) -> Mapping[str, Array]:
        """The inputs; valid until the request was taken."""
        ...

    @property
    def parameters(self) -> Mapping[str, object]:
        """The request's parameters."""
        ...

    @property
    def request_id(self) -> str:
        """The client's name of it; empty if it gave none."""
        ...

    @property
    def wanted(self) -> Collection[str]:
        """Names of the outputs that the client wants."""
        ...

    @property
    def timeout_s(self) -> float | None:
        """What the client gives the answer."""
        ...

    def is_cancelled(self) -> bool:
        """Tell whether the client has gone. May be called at any time, on any thread."""
        ...

    def respond(self, tensors: Mapping[str, Array], *, is_last: bool) -> None:
        """Send a response."""
        ...

    def fail(self, failure: Failure) -> None:
        """Send an error as the last response."""
        ...


@dataclass(slots=True, eq=False)
class OpenCall:
    """A call that has not got its last response. What changes is the responder's."""

    call: Call
    ask: Ask
    deadline_s: float | None = None
    """On the monotonic clock."""
    is_cancelling: bool = False
    """The host was told; its last news is on the way."""
    news: list[News] = field(default_factory=list)
    """Not yet sent."""
    failure: Failure | None = None
    is_queued: bool = False
    has_begun: bool = False
    """A response was sent, or is about to be."""
    has_failed: bool = False
    """Its last response was an error; news of other choices may still come."""

    def has_left(self) -> bool:
        """Tell whether the client is gone; if that can't be known, it is as good as gone."""
        try:
            return self.call.is_cancelled()
        except Exception as error:  # noqa: BLE001 - the other calls must be watched on
            log_failure(logger, "a call could not be watched, and is cancelled", error)
            return True


class Responder:
    """Sends the responses of all calls of a front."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._first: deque[OpenCall] = deque()
        """Calls that wait for their first response; they go before those that have one."""
        self._further: deque[OpenCall] = deque()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="responder", daemon=True)
        self._thread.start()

    def add(self, items: Iterable[tuple[OpenCall, News]]) -> None:
        """Take news of several calls, one frame's worth at a time."""
        with self._changed:
            for open_call, news in items:
                open_call.news.append(news)
                if open_call.ask.is_streaming or news.is_last:
                    self._enqueue(open_call)
            self._changed.notify()

    def fail(self, open_call: OpenCall, failure: Failure) -> None:
        """End a call with an error; news that was not sent is dropped."""
        with self._changed:
            open_call.failure = failure
            self._enqueue(open_call)
            self._changed.notify()

    def close(self) -> None:
        """Send what is there, then end."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()

    def _enqueue(self, open_call: OpenCall) -> None:
        if open_call.is_queued:
            return
        open_call.is_queued = True
        (self._further if open_call.has_begun else self._first).append(open_call)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._first or self._further or self._is_closing)
                if not self._first and not self._further:
                    return
                open_call = (self._first or self._further).popleft()
                open_call.is_queued, open_call.has_begun = False, True
                news, open_call.news = open_call.news, []
            _send(open_call, news)


def _send(open_call: OpenCall, news: list[News]) -> None:
    """Send the next responses of a call; whatever goes wrong, it concerns this call alone."""
    if open_call.has_failed:
        return
    try:
        failure = open_call.failure or next(filter(None, map(_failure, news)), None)
        if failure is not None:
            open_call.has_failed = True
            open_call.call.fail(failure)
            return
        whole = list(map(merged, _by_choice(news)))
        *others, final = open_call.ask.write(whole)
        for tensors in others:
            open_call.call.respond(tensors, is_last=False)
        open_call.call.respond(final, is_last=whole[-1].is_last)
    except Exception as error:  # noqa: BLE001
        log_failure(logger, "a response could not be sent", error)
        with contextlib.suppress(Exception):
            open_call.call.fail(Failure(FailureKind.INTERNAL, "a response could not be sent."))


def _by_choice(news: list[News]) -> Iterable[list[News]]:
    """Group the news of a call by choice; the choice of the last news comes last."""
    groups: dict[int, list[News]] = {}
    for each in news:
        groups[each.choice] = [*groups.pop(each.choice, ()), each]
    return groups.values()


def _failure(news: News) -> Failure | None:
    """Give the failure that news amounts to: of one choice, it is the whole call's."""
    match news.finish_reason:
        case FinishReason.CANCELLED:
            return Failure(FailureKind.CANCELLED, "the request was cancelled.")
        case FinishReason.INVALID:
            return Failure(FailureKind.INVALID, news.error or "no token is left to go on with.")
        case FinishReason.ERROR:
            return Failure(FailureKind.INTERNAL, news.error or "the engine failed.")
        case FinishReason.TIMEOUT:
            return Failure(FailureKind.TIMEOUT, news.error or "the deadline has passed.")
    return None
