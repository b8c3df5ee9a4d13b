"""A host without its process: fronts over socket pairs, a worker over the scripted engine, a model to encode."""

import queue
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

from builder.artifact.config import Limits
from builder.errors import RequestError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend.config import PolicyName
from triton_backend.engine import Engine
from triton_backend.fronts import Fronts
from triton_backend.joined_front import Service
from triton_backend.link import Link
from triton_backend.messages import (
    VERSION,
    FromFront,
    FromHost,
    Hello,
    Join,
    PlainText,
    TokenIds,
)
from triton_backend.reception import Reception
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

    def encode(self, prompt: object) -> tuple[int, ...]:
        assert self.may_encode.wait(PATIENCE_S)
        if isinstance(prompt, TokenIds):
            return prompt.token_ids
        assert isinstance(prompt, PlainText)
        if prompt.text == "panic":
            raise PanicError("words of a prompt")
        raise RequestError(f"{prompt.text} can't be encoded.")


class Stage:
    """A host without its process: fronts, a worker that runs, a model to encode."""

    def __init__(self) -> None:
        self.loaded: Future[Service] = Future()
        self.fronts = Fronts(self.loaded)
        self.model = FakeModel()
        executor = ScriptedExecutor(make_limits(), block_size=4, vocab_size=50)
        self.engine = Engine(executor, end_token_ids=())
        self.worker = Worker(self.engine, self.fronts)
        self.work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.links: list[Link[FromHost]] = []
        self.threads = [
            threading.Thread(target=target) for target in (self.worker.run, self.encode)
        ]
        for thread in self.threads:
            thread.start()

    def encode(self) -> None:
        while (work := self.work.get()) is not quit:
            work()

    def load(self) -> None:
        model: Any = self.model
        reception = Reception(model, policy=PolicyName.FCFS, secret=SECRET)
        self.loaded.set_result(Service(HELLO, model, self.worker, self.work.put, reception))

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
        self.worker.stop()
        self.work.put(quit)
        for thread in self.threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


def await_true(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        threading.Event().wait(0.005)
