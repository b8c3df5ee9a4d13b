"""A host without its process: fronts over socket pairs, a worker over the scripted engine, a model to encode."""

import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from builder.artifact.config import Limits
from builder.errors import RequestError, UnavailableError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend.config import PolicyName
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.engine import Engine
from triton_backend.fronts import Fronts
from triton_backend.joined_front import Service
from triton_backend.link import Link
from triton_backend.messages import (
    VERSION,
    Deltas,
    FromFront,
    FromHost,
    Hello,
    Join,
    News,
    PlainText,
    Submit,
    TokenIds,
)
from triton_backend.reception import Reception
from triton_backend.request import Request, SamplingParams
from triton_backend.text_queue import TextQueue, WaitingText
from triton_backend.worker import Worker

PATIENCE_S = 60
SECRET = b"s" * 32
HELLO = Hello(VERSION, "ab", 50, Limits(1000, 100, 1000, 100, 1000))


class PanicError(BaseException):
    """What a panic inside the tokenizer is: no Exception."""


class FakeModel:
    """Encodes token ids as they are, and texts by their words."""

    def __init__(self) -> None:
        self.tokenizer = SimpleNamespace(token_bytes=lambda token_id: b"<%d>" % token_id)
        self.may_encode = threading.Event()
        self.may_encode.set()
        self.num_begun = 0
        """Prompts whose encoding began."""
        self.may_compile = threading.Event()
        self.may_compile.set()
        self.compiled: list[str] = []
        """Constraints, in the order in which compiling them began."""

    def has_to_compile(self, request: Request) -> bool:
        constraint = request.params.constraint
        return constraint is not None and constraint.text != "known"

    def prepare(self, request: Request) -> Request:
        constraint = request.params.constraint
        if constraint is None or constraint.text == "known":
            return request
        self.compiled.append(constraint.text)
        assert self.may_compile.wait(PATIENCE_S)
        if constraint.text == "busy":
            raise UnavailableError("the server is too busy.")
        raise RequestError(f"{constraint.text} can't be compiled.")

    def encode(self, prompt: object) -> tuple[int, ...]:
        self.num_begun += 1
        assert self.may_encode.wait(PATIENCE_S)
        if isinstance(prompt, TokenIds):
            return prompt.token_ids
        assert isinstance(prompt, PlainText)
        if prompt.text == "panic":
            raise PanicError("words of a prompt")
        raise RequestError(f"{prompt.text} can't be encoded.")


PROMPT = TokenIds((3, 1, 4))


def submit(
    number: int,
    *,
    max_tokens: int = 3,
    prompt: Any = PROMPT,
    deadline_s: float | None = None,
    constraint: str | None = None,
) -> Submit:
    params = SamplingParams(
        temperature=0,
        max_tokens=max_tokens,
        logprobs=1,
        constraint=None if constraint is None else Constraint(ConstraintKind.REGEX, constraint),
    )
    return Submit(number, prompt, params, deadline_s=deadline_s)


def answer(link: Link[FromHost], number: int) -> list[News]:
    """Hear everything up to the end of a request; give its own news."""
    heard: list[News] = []
    while not heard or heard[-1].finish_reason is None:
        message = link.receive()
        assert isinstance(message, Deltas)
        heard += [news for news in message.news if news.id == number]
    return heard


class Stage:
    """A host without its process: fronts, a worker that runs, a model to encode."""

    def __init__(self) -> None:
        self.loaded: Future[Service] = Future()
        self.fronts = Fronts(self.loaded)
        self.model = FakeModel()
        executor = ScriptedExecutor(make_limits(), block_size=4, vocab_size=50)
        self.engine = Engine(executor, end_token_ids=())
        self.worker = Worker(self.engine, self.fronts)
        self.prompts = TextQueue(max_waiting=5)
        self.constraints = TextQueue(max_of_tenant=3)
        self.is_closing = threading.Event()
        self.links: list[Link[FromHost]] = []
        self.threads = [
            threading.Thread(target=target)
            for target in (self.worker.run, self.encode, self.give_up_late, self.compile)
        ]
        for thread in self.threads:
            thread.start()

    def encode(self) -> None:
        while not self.is_closing.is_set():
            self.prompts.serve_oldest()

    def compile(self) -> None:
        while not self.is_closing.is_set():
            self.constraints.serve_in_turn()

    def give_up_late(self) -> None:
        while not self.is_closing.is_set():
            self.prompts.give_up_late()

    def load(self) -> None:
        model: Any = self.model
        reception = Reception(model, policy=PolicyName.FCFS, secret=SECRET)
        self.loaded.set_result(
            Service(HELLO, model, self.worker, reception, self.prompts, self.constraints)
        )

    def connect(self) -> Link[FromHost]:
        ours, theirs = socket.socketpair()
        link: Link[FromFront] = Link(ours, FromFront)
        self.threads.append(threading.Thread(target=self.fronts.attend, args=(link,)))
        self.threads[-1].start()
        self.links.append(Link(theirs, FromHost))
        return self.links[-1]

    def join(self) -> Link[FromHost]:
        link = self.connect()
        link.send(Join(VERSION, "forerun"))
        assert link.receive() == HELLO
        return link

    def close(self) -> None:
        for link in self.links:
            link.close()
        self.model.may_encode.set()
        self.model.may_compile.set()
        self.worker.stop()
        self.prompts.put((0, 0), WaitingText(0, self.is_closing.set, print))
        assert self.is_closing.wait(PATIENCE_S)
        self.prompts.put((0, 1), WaitingText(0, print, print, deadline_s=0))
        self.constraints.put((0, 0), WaitingText(0, print, print))
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def await_true(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
