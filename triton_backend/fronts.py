"""All fronts of an engine host: they come, they hear what the worker says, and they leave.

A host without fronts has nobody to work for, whatever became of them; waiting for that is here too.
"""

import logging
import threading
import time
from collections import defaultdict
from concurrent.futures import Future

from builder.errors import ForerunError
from triton_backend.joined_front import JoinedFront, Service, front_number
from triton_backend.link import Link, LinkError
from triton_backend.messages import VERSION, Failed, FromFront, Join, RefusalKind
from triton_backend.request import Delta

logger = logging.getLogger(__name__)

FLUSH_S = 1.0
"""What fronts get to read the last news before their links are cut."""


class Fronts:
    """The fronts of one host (a `Listener` of its worker)."""

    def __init__(self, loaded: "Future[Service]") -> None:
        """Begin without fronts. Those who join wait until `loaded` has the service, or its failure."""
        self._loaded = loaded
        self._changed = threading.Condition()
        self._num_connected = 0
        self._num_joined = 0
        self._has_taken_leave = False
        """The last front to go said so: it will not be back at once."""
        self._joined: dict[int, JoinedFront] = {}

    def attend(self, link: Link[FromFront]) -> None:
        """Serve whoever connected, until the link ends. Blocks: a thread for each."""
        with self._changed:
            self._num_connected += 1
            self._changed.notify_all()
        has_taken_leave = False
        try:
            has_taken_leave = self._serve(link)
        except LinkError as error:
            logger.warning("the link of a front was cut: %s", error)
        finally:
            link.close()
            with self._changed:
                self._num_connected -= 1
                self._has_taken_leave = has_taken_leave
                self._changed.notify_all()

    def wait_until_deserted(self, *, first_s: float, grace_s: float) -> None:
        """Wait until no front came within `first_s`, or the last has left and none came within `grace_s`.

        After an orderly leave there is no grace.
        """
        patience_s = first_s
        with self._changed:
            while self._changed.wait_for(lambda: self._num_connected > 0, patience_s):
                self._changed.wait_for(lambda: self._num_connected == 0)
                patience_s = 0 if self._has_taken_leave else grace_s

    def hear(self, deltas: list[Delta]) -> None:
        """Hand the news of a step to the fronts that it belongs to."""
        by_front: defaultdict[int, list[Delta]] = defaultdict(list)
        for delta in deltas:
            by_front[front_number(delta.request_id)].append(delta)
        for number, own in by_front.items():
            front = self._joined.get(number)
            if front is not None:
                front.hear(own)

    def refuse(self, request_id: str, kind: RefusalKind, message: str) -> None:
        """Hand a refusal to the front that it belongs to."""
        front = self._joined.get(front_number(request_id))
        if front is not None:
            front.refuse(request_id, kind, message)

    def end_all(self) -> None:
        """End all links, when what was heard so far is sent or a moment has passed."""
        joined = list(self._joined.values())
        for front in joined:
            front.end()
        deadline = time.monotonic() + FLUSH_S
        for front in joined:
            front.wait_until_ended(max(deadline - time.monotonic(), 0))

    def wait_until_told(self, timeout_s: float) -> None:
        """Wait until everybody who connected has left, after a failure to load was told to them."""
        with self._changed:
            self._changed.wait_for(lambda: self._num_connected > 0, timeout_s)
            self._changed.wait_for(lambda: self._num_connected == 0, timeout_s)

    def _serve(self, link: Link[FromFront]) -> bool:
        """Let a front join and serve it; tell whether it took its leave."""
        first = link.receive()
        if first is None:
            return False
        if not isinstance(first, Join):
            raise LinkError("a front spoke before it joined")
        if first.version != VERSION:
            link.send(Failed(_other_version(first.version), exit_code=2))
            return False
        try:
            service = self._loaded.result()
        except ForerunError as error:
            link.send(Failed(str(error), error.exit_code))
            return False
        with self._changed:
            self._num_joined += 1
            number = self._num_joined
        front = JoinedFront(number, link, service)
        self._joined[number] = front
        logger.info("front %d (face %s) joined", number, first.face)
        try:
            return front.serve()
        finally:
            del self._joined[number]
            logger.info("front %d left", number)


def _other_version(version: int) -> str:
    return (
        f"the engine host speaks version {VERSION} of the link and the front version {version}; "
        "unload all models of the deployment, then load them again"
    )
