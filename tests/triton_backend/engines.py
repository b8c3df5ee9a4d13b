"""Engines over the scripted executor, requests for them, and what they answer."""

from collections.abc import Iterable
from typing import Any

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.executor import Executor
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend.engine import Engine
from triton_backend.request import Delta, Request, SamplingParams

VOCAB = 50


PROMPT = (3, 1, 4, 1, 5)


class FailingExecutor(ScriptedExecutor):
    """Fails in chosen steps."""

    failures: dict[int, BaseException] = {}  # noqa: RUF012 - replaced, never changed
    num_steps = 0

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        self.num_steps += 1
        if self.num_steps in self.failures:
            raise self.failures[self.num_steps]
        return super().execute(step, asks)


def make_engine(
    executor: Executor | None = None, *, end_ids: Iterable[int] = (), **given: Any
) -> Engine:
    made = executor or ScriptedExecutor(make_limits(), block_size=4, vocab_size=VOCAB)
    return Engine(made, end_token_ids=end_ids, **given)


def failing_engine(failures: dict[int, BaseException], **limits: int) -> Engine:
    executor = FailingExecutor(make_limits(**limits), block_size=4, vocab_size=VOCAB)
    executor.failures = failures
    return make_engine(executor)


def request(name: str = "a", prompt: tuple[int, ...] = PROMPT, **params: Any) -> Request:
    return Request(name, prompt, SamplingParams(**{"temperature": 0, "max_tokens": 6, **params}))


def drain(engine: Engine) -> dict[str, list[Delta]]:
    """Step until nothing is left; give the deltas of each request."""
    heard: dict[str, list[Delta]] = {}
    while engine.has_work:
        for delta in engine.step():
            heard.setdefault(delta.request_id, []).append(delta)
    return heard


def token_ids(deltas: list[Delta]) -> tuple[int, ...]:
    return tuple(token_id for delta in deltas for token_id in delta.token_ids)
