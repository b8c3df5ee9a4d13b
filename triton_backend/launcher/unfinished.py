"""Asks engine hosts how many answers they have not finished, as a front would.

Triton can't tell: it counts none of a model that answers by itself, and it waits for every stream that a client keeps
open, whether anything runs in it or not.
"""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from triton_backend.launcher import family
from triton_backend.link import Link, LinkError
from triton_backend.messages import VERSION, Busy, FromHost, Join, Ping, Pong
from triton_backend.rendezvous import connect

TIMEOUT_S = 1.0
"""For a host to answer; one that is just loading its engine has nothing to finish."""
NAME = "builder serve"


class UnfinishedAnswers:
    """Links to the hosts of one server; used by one thread."""

    def __init__(self, hosts: Iterable[family.Process]) -> None:
        """Join the hosts; those that do not take us in count as without answers."""
        self._links = [link for host in hosts if (link := _join(host)) is not None]

    def __enter__(self) -> "UnfinishedAnswers":
        return self

    def __exit__(self, *_: object) -> None:
        for link in self._links:
            link.close()

    def count(self) -> int:
        """Count the answers that run or wait; a host that has ended has none."""
        return sum(map(_ask, self._links))


def _join(host: family.Process) -> Link[FromHost] | None:
    path = family.option_of(host, "--socket")
    connection = None if path is None else connect(Path(path))
    if connection is None:
        return None
    connection.settimeout(TIMEOUT_S)
    link: Link[FromHost] = Link(connection, FromHost)
    with contextlib.suppress(LinkError):
        link.send(Join(VERSION, NAME))
        if link.receive() is not None:
            return link
    link.close()
    return None


def _ask(link: Link[FromHost]) -> int:
    with contextlib.suppress(LinkError):
        link.send(Ping())
        answer = link.receive()
        if isinstance(answer, Pong):
            return answer.num_running + answer.num_waiting
        if isinstance(answer, Busy):
            return 1  # at least, or there would be no step
    return 0
