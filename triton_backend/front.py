"""The front of a deployment inside Triton: requests go to the engine host, its news become responses.

It knows faces and messages, but neither Triton nor engines. When the host is gone or hangs, its requests fail at once
and a new host is joined. Threads: whoever calls `take`; one that receives; one that sends; the responder's; one
that watches for cancelled requests and asks the host for a sign of life.
"""

import itertools
import logging
import threading
from collections.abc import Callable

from builder.errors import RequestError
from triton_backend.attach import Attached, AttachError, HostDoor
from triton_backend.failures import log_failure
from triton_backend.link import FrameSizeError, Link, LinkError
from triton_backend.messages import (
    Busy,
    Cancel,
    Deltas,
    FromHost,
    Leave,
    Ping,
    Pong,
    Refused,
    Submit,
)
from triton_backend.outbox import Outbox
from triton_backend.protocol import Face, Inputs
from triton_backend.responder import Call, Failure, FailureKind, OpenCall, Responder

logger = logging.getLogger(__name__)

PING_S = 1.0
QUIET_PINGS, LOST_PINGS = 5, 20
"""Pings without a word after which a host is not ready, and after which it hangs and is killed. It answers in the midst
of a step too. Pings are counted, not seconds: a terminal may stop the front along with its host."""
MAX_STEP_S = 600.0
"""A step that lasts longer will not end. A chunk of a prompt may take minutes on a slow CPU."""
MAX_BACKLOG_BYTES = 64 * 1024 * 1024
"""Requests that may wait until the host reads; it does at once, unless it hangs."""
LEAST_POLL_S = 0.02
POLL_PER_CALL_S = 0.0006
"""Asking Triton whether a call is cancelled takes 20 to 300 us in two processes, the longer the busier they are. A step
takes about as long as these pauses, and a cancel takes effect between two steps anyway."""
SETTLED_S = 10.0
MAX_DELAY_S = 5.0
"""A host that ends soon after it was joined is joined again later and later."""
MAX_SAID = 16  # reasons why there is no host, each of them once
LEAVE_S = 1.0
"""What a host gets to hear that we leave."""
CLOSE_S = 5.0
OVERDUE_S = 1.0
"""What a host gets to say that a deadline has passed. It sees to deadlines itself, but only between two steps, and a
step may take minutes, or the host may hang: then clients hear it from here."""

STOPPED = Failure(
    FailureKind.UNAVAILABLE, "the engine host stopped while it had this request; send it again."
)
ABSENT = Failure(
    FailureKind.UNAVAILABLE, "the engine host is being started; try again in a few seconds."
)
BEHIND = Failure(
    FailureKind.UNAVAILABLE, "the engine host does not read requests; try again later."
)
LATE = Failure(FailureKind.TIMEOUT, "the deadline passed in the midst of a step, or of a hang.")


class Front:
    """One face of a deployment. `take` and `is_ready` may be called on any thread."""

    def __init__(
        self,
        face: Face,
        door: HostDoor,
        *,
        clock: Callable[[], float],
        on_pong: Callable[[Pong], None],
    ) -> None:
        """Begin without a host; `clock` is the monotonic one, as deadlines are sent to the host by it.

        `on_pong` hears about the engine every second.
        """
        self._face = face
        self._door = door
        self._clock = clock
        self._on_pong = on_pong
        self._lock = threading.Lock()
        self._host: Attached | None = None
        self._outbox: Outbox | None = None
        self._open: dict[int, OpenCall] = {}
        """Calls that the host has, by the id they were submitted under."""
        self._ids = itertools.count(1)
        self._num_unanswered = 0
        """Pings since the last word of the host."""
        self._is_closing = threading.Event()
        self._has_news = threading.Event()
        """Wakes the watcher: a call was taken, or the front closes."""
        self._responder = Responder()
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        """Join the host, started if need be, and wait until its engine is loaded.

        Raises:
            AttachError: it can't serve; the message says why.
        """
        attached = self._door.attach()
        self._threads = [
            threading.Thread(target=self._receive, args=(attached,), name="receiver", daemon=True),
            threading.Thread(target=self._watch, name="watcher", daemon=True),
        ]
        self._adopt(attached)
        for thread in self._threads:
            thread.start()

    def take(self, call: Call) -> None:
        """Take a request. A refusal is sent at once; all else comes from the responder."""
        try:
            inputs = Inputs(self._face.inputs, call.tensors)
            ask = self._face.read(inputs, call.parameters, call.wanted)
        except RequestError as error:
            call.fail(Failure(FailureKind.INVALID, str(error)))
            return
        deadline_s = None if (given_s := call.timeout_s) is None else self._clock() + given_s
        number = next(self._ids)
        with self._lock:
            outbox = self._outbox
            if outbox is not None:
                self._open[number] = OpenCall(call, ask, deadline_s)
        if outbox is None:
            call.fail(ABSENT)
            return
        submit = Submit(number, ask.prompt, ask.params, ask.terms, call.request_id, deadline_s)
        self._submit(outbox, submit)
        self._has_news.set()

    def is_ready(self) -> bool:
        """Tell whether a host is joined and has given a sign of life lately."""
        with self._lock:
            return self._outbox is not None and self._num_unanswered <= QUIET_PINGS

    def close(self) -> None:
        """Leave the host. Calls that are open fail; there are none when Triton unloads in good order."""
        self._is_closing.set()
        self._has_news.set()
        with self._lock:
            outbox = self._outbox
        if outbox is not None:
            outbox.send(Leave())
            outbox.end()
            outbox.wait_until_ended(LEAVE_S)
        self._door.close()
        for thread in self._threads:
            thread.join(CLOSE_S)
        self._responder.close()

    def _submit(self, outbox: Outbox, submit: Submit) -> None:
        if outbox.num_waiting_bytes > MAX_BACKLOG_BYTES:
            self._refuse(submit.id, BEHIND)
            return
        try:
            outbox.send(submit)
        except FrameSizeError as error:
            reason = f"the request is too large: {error}; shorten the prompt."
        except UnicodeEncodeError:
            reason = "the request has half of a surrogate pair in it; send valid Unicode."
        else:
            return
        self._refuse(submit.id, Failure(FailureKind.INVALID, reason))

    def _refuse(self, number: int, failure: Failure) -> None:
        with self._lock:
            open_call = self._open.pop(number, None)
        if open_call is not None:
            self._responder.fail(open_call, failure)

    def _receive(self, attached: Attached) -> None:
        """Listen to one host after the other until the front closes."""
        delay_s = 0.0
        next_host: Attached | None = attached
        while next_host is not None:
            joined_s = self._clock()
            self._listen(next_host.link)
            self._lose()
            settled = self._clock() - joined_s > SETTLED_S
            delay_s = 0.0 if settled else min(2 * delay_s + 0.1, MAX_DELAY_S)
            next_host = self._attach_again(delay_s)

    def _listen(self, link: Link[FromHost]) -> None:
        """Take what the host says until the link ends."""
        try:
            while (message := link.receive()) is not None:
                self._hear(message)
        except LinkError as error:
            logger.error("the link to the engine host is cut: %s", error)  # noqa: TRY400
        except Exception as error:  # noqa: BLE001 - nobody would listen any more, and clients would wait
            log_failure(logger, "the link to the engine host is cut", error)
        link.close()

    def _hear(self, message: FromHost) -> None:
        self._num_unanswered = 0
        match message:
            case Deltas(news):
                with self._lock:
                    items = [(self._open[each.id], each) for each in news if each.id in self._open]
                    for each in news:
                        if each.is_last:
                            self._open.pop(each.id, None)
                self._responder.add(items)
            case Refused(number, kind, text):
                self._refuse(number, Failure(FailureKind(kind), text))
            case Pong():
                self._meter(message)
            case Busy(waited_s) if waited_s > MAX_STEP_S and self._host is not None:
                logger.error("a step of the engine host lasts %.0f s; it is killed", waited_s)
                self._host.kill()

    def _meter(self, pong: Pong) -> None:
        try:
            self._on_pong(pong)
        except Exception as error:  # noqa: BLE001 - numbers for dashboards must not end what they count
            log_failure(logger, "the metrics were not brought up to date", error)

    def _lose(self) -> None:
        """Fail all that the host had."""
        with self._lock:
            if self._outbox is not None:
                self._outbox.end()
            self._host = self._outbox = None
            lost, self._open = self._open, {}
        if not self._is_closing.is_set():
            logger.error("the engine host is gone; %d requests fail", len(lost))
        for open_call in lost.values():
            self._responder.fail(open_call, STOPPED)

    def _attach_again(self, delay_s: float) -> Attached | None:
        """Join a host, trying for as long as it takes; None when the front closes."""
        said: set[str] = set()
        while not self._is_closing.wait(delay_s):
            try:
                attached = self._door.attach()
            except (AttachError, OSError) as error:
                is_new = str(error) not in said and len(said) < MAX_SAID
                if is_new and not self._is_closing.is_set():
                    said.add(str(error))
                    logger.error("the engine host can't be joined: %s", error)  # noqa: TRY400
                delay_s = min(2 * delay_s + 0.1, MAX_DELAY_S)
                continue
            self._adopt(attached)
            logger.info("joined an engine host again")
            return attached
        return None

    def _adopt(self, attached: Attached) -> None:
        with self._lock:
            self._num_unanswered = 0
            self._host = attached
            self._outbox = Outbox(attached.link)

    def _watch(self) -> None:
        """Look for cancelled and late calls while there are any, and ping the host."""
        pinged_s = self._clock()
        while not self._is_closing.is_set():
            with self._lock:
                host, outbox, watched = self._host, self._outbox, list(self._open.items())
            if host is not None and outbox is not None:
                for number, open_call in watched:
                    self._look_after(outbox, number, open_call)
                if self._clock() - pinged_s >= PING_S:
                    pinged_s = self._clock()
                    self._ping(host, outbox)
            self._rest(len(watched))

    def _ping(self, host: Attached, outbox: Outbox) -> None:
        """Ask for a sign of life, or kill a host that gave none for too long."""
        self._num_unanswered += 1
        if self._num_unanswered > LOST_PINGS:
            logger.error("the engine host does not answer, and is killed")
            host.kill()
        else:
            outbox.send(Ping())

    def _rest(self, num_watched: int) -> None:
        """Wait for the next look; without calls, until one is taken or a ping is due."""
        if num_watched:
            self._is_closing.wait(max(LEAST_POLL_S, POLL_PER_CALL_S * num_watched))
            return
        self._has_news.wait(PING_S)
        self._has_news.clear()

    def _look_after(self, outbox: Outbox, number: int, open_call: OpenCall) -> None:
        """Let the host cancel a call whose client is gone; end one whose deadline it does not keep."""
        if open_call.is_cancelling:
            return
        if open_call.has_left():
            open_call.is_cancelling = True
            outbox.send(Cancel(number))
        elif open_call.deadline_s is not None and self._clock() > open_call.deadline_s + OVERDUE_S:
            self._refuse(number, LATE)
