"""Runs requests in one engine and hands their answers to an output as they grow.

It knows neither prompts nor tokenizers. Times are in seconds of the clock that it is given.
"""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from builder.errors import RequestError
from triton_backend.request import Delta, FinishReason, Request


class Engine(Protocol):
    """What is needed of the engine loop."""

    def submit(self, request: Request) -> None: ...

    def step(self) -> Iterable[Delta]: ...

    @property
    def has_work(self) -> bool: ...


class Output(Protocol):
    """Takes the text of several answers, numbered in the order of the command line: all of a prompt, then of the next."""

    def add(self, index: int, text: str) -> None:
        """Take text that continues an answer."""
        ...

    def finish(self, index: int, outcome: "Outcome") -> None:
        """Take note that an answer is complete."""
        ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one request went."""

    finish_reason: FinishReason
    num_prompt_tokens: int
    num_generated_tokens: int
    ttft_s: float
    """From submit to the first delta."""
    total_s: float
    """From submit to the last delta."""
    error: str | None

    @property
    def decode_tokens_per_s(self) -> float | None:
        """Tokens after the first, per second after the first; None when there is no second token."""
        later, took = self.num_generated_tokens - 1, self.total_s - self.ttft_s
        return later / took if later > 0 and took > 0 else None


def run_requests(
    engine: Engine, requests: Sequence[Request], *, output: Output, clock: Callable[[], float]
) -> list[Outcome]:
    """Run all requests together, and give the outcomes of their choices in order.

    Raises:
        RequestError: one of them can't be admitted; nothing was generated for any then.
    """
    submit_all(engine, requests)
    choices = [(each.request_id, i) for each in requests for i in range(each.params.num_choices)]
    places = {choice: index for index, choice in enumerate(choices)}
    submitted, first = clock(), dict[int, float]()
    outcomes = dict[int, Outcome]()
    while engine.has_work:
        for delta in engine.step():
            index, now = places[delta.request_id, delta.choice], clock() - submitted
            first.setdefault(index, now)
            output.add(index, delta.text)
            if delta.finish_reason is not None:
                outcomes[index] = outcome_of(delta, ttft_s=first[index], total_s=now)
                output.finish(index, outcomes[index])
    return [outcomes[index] for index in range(len(choices))]


def submit_all(engine: Engine, requests: Sequence[Request]) -> None:
    """Submit every request before any step.

    Raises:
        RequestError: as the engine says; with several prompts, the message names which.
    """
    for number, request in enumerate(requests, start=1):
        with naming_prompt(number, len(requests)):
            engine.submit(request)


@contextlib.contextmanager
def naming_prompt(number: int, count: int) -> Iterator[None]:
    """Say in a refusal which of several prompts it is about.

    Raises:
        RequestError: the refusal, which names the prompt if there are several.
    """
    try:
        yield
    except RequestError as error:
        if count == 1:
            raise
        raise RequestError(f"prompt {number}: {error}") from error


def outcome_of(delta: Delta, *, ttft_s: float, total_s: float) -> Outcome:
    """Give the outcome that a last delta reports."""
    assert delta.finish_reason is not None
    return Outcome(
        finish_reason=delta.finish_reason,
        num_prompt_tokens=delta.num_prompt_tokens,
        num_generated_tokens=delta.num_generated_tokens,
        ttft_s=ttft_s,
        total_s=total_s,
        error=delta.error,
    )
