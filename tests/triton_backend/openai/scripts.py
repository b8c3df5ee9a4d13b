"""What a face of a test answers: scripts of pieces, each the content of one response."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import grpc

WAIT_S = 60


class FailedError(Exception):
    """Raised by a script to end a call with an error inside its stream."""


class AbortedError(Exception):
    """Raised by a script to end a call with a status."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self.code = code


@dataclass(frozen=True)
class Asked:
    """A request as it arrived."""

    id: str
    model: str
    tensors: dict[str, list[Any]]
    datatypes: dict[str, str]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    call_ended: threading.Event = field(repr=False)


@dataclass(frozen=True)
class Piece:
    """What one response of a script holds."""

    text: str = ""
    finish_reason: str = ""
    token_ids: tuple[int, ...] | None = None
    """By default the bytes of the text."""
    logprob: float = -0.5
    choice: int = 0

    @property
    def ids(self) -> list[int]:
        return list(self.text.encode()) if self.token_ids is None else list(self.token_ids)


Script = Callable[[Asked], Iterator[Piece]]


def saying(*texts: str, finish_reason: str = "stop") -> Script:
    """Answer with these texts, a delta each."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from map(Piece, texts)
        yield Piece(finish_reason=finish_reason)

    return script


def saying_each(*texts: str) -> Script:
    """Answer with a choice for each text, in two deltas each; the last choice is finished first."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from [Piece(text, choice=choice) for choice, text in enumerate(texts)]
        for choice in reversed(range(len(texts))):
            yield Piece(finish_reason="stop", choice=choice)

    return script


def failing(message: str, *, after: tuple[str, ...] = ()) -> Script:
    """Fail as a face does, after these texts."""

    def script(_: Asked) -> Iterator[Piece]:
        yield from map(Piece, after)
        raise FailedError(message)

    return script


def aborting(code: grpc.StatusCode) -> Script:
    """End the call with a status."""

    def script(_: Asked) -> Iterator[Piece]:
        yield Piece("x")
        raise AbortedError(code)

    return script


def hanging(*texts: str) -> Script:
    """Say these texts and then nothing until the call ends."""

    def script(asked: Asked) -> Iterator[Piece]:
        yield from map(Piece, texts)
        asked.call_ended.wait(WAIT_S)

    return script
