"""Requests run together in a scripted list of steps."""

import itertools
from collections.abc import Iterable, Sequence

import pytest

from builder.cli.run import Outcome, run_requests
from builder.errors import RequestError
from triton_backend.request import Delta, FinishReason, Request, SamplingParams


class ListedEngine:
    """Gives deltas that were written down beforehand, one list a step."""

    def __init__(self, *steps: Sequence[Delta], refuse: str | None = None) -> None:
        self.steps = list(steps)
        self.refuse = refuse
        self.submitted: list[str] = []
        self.num_steps = 0

    def submit(self, request: Request) -> None:
        if request.request_id == self.refuse:
            raise RequestError("the prompt has 9 tokens; the limit is 8")
        self.submitted.append(request.request_id)

    @property
    def has_work(self) -> bool:
        return self.num_steps < len(self.steps)

    def step(self) -> Iterable[Delta]:
        self.num_steps += 1
        return self.steps[self.num_steps - 1]


class Heard:
    """Writes down what an output is told."""

    def __init__(self) -> None:
        self.events: list[tuple[int, str]] = []

    def add(self, index: int, text: str) -> None:
        self.events.append((index, text))

    def finish(self, index: int, outcome: Outcome) -> None:
        self.events.append((index, outcome.finish_reason.value))


def delta(
    name: str, text: str, count: int, reason: FinishReason | None = None, *, choice: int = 0
) -> Delta:
    return Delta(
        request_id=name,
        token_ids=(1,),
        text=text,
        finish_reason=reason,
        stop_reason=None,
        num_prompt_tokens=3,
        num_generated_tokens=count,
        choice=choice,
        is_last=reason is not None,
    )


def requests(*names: str) -> list[Request]:
    return [Request(name, (1, 2, 3)) for name in names]


def run(engine: ListedEngine, *names: str) -> tuple[list[Outcome], list[tuple[int, str]]]:
    output, ticks = Heard(), itertools.count()
    outcomes = run_requests(
        engine, requests(*names), output=output, clock=lambda: float(next(ticks))
    )
    return outcomes, output.events


def test_text_and_ends_reach_the_output_under_the_place_of_the_prompt() -> None:
    engine = ListedEngine(
        [delta("a", "A", 1), delta("b", "B", 1, FinishReason.STOP)],
        [],
        [delta("a", "a", 2, FinishReason.LENGTH)],
    )
    outcomes, events = run(engine, "a", "b")
    assert events == [(0, "A"), (1, "B"), (1, "stop"), (0, "a"), (0, "length")]
    assert [outcome.finish_reason for outcome in outcomes] == ["length", "stop"]
    assert [outcome.num_generated_tokens for outcome in outcomes] == [2, 1]
    assert {outcome.num_prompt_tokens for outcome in outcomes} == {3}


def test_times_count_from_submit_to_the_first_and_the_last_delta() -> None:
    steps = [[delta("a", "x", 1)], [delta("a", "y", 3)], [delta("a", "z", 5, FinishReason.STOP)]]
    (outcome,), _ = run(ListedEngine(*steps), "a")
    assert (outcome.ttft_s, outcome.total_s) == (1.0, 3.0)
    assert outcome.decode_tokens_per_s == 2.0


def test_an_answer_of_one_token_has_no_decode_speed() -> None:
    (outcome,), _ = run(ListedEngine([delta("a", "x", 1, FinishReason.STOP)]), "a")
    assert outcome.decode_tokens_per_s is None


def test_a_refused_prompt_is_named_and_no_step_is_run_for_the_others() -> None:
    engine = ListedEngine([delta("a", "x", 1, FinishReason.STOP)], refuse="b")
    with pytest.raises(RequestError, match=r"^prompt 2: the prompt has 9 tokens; the limit is 8$"):
        run(engine, "a", "b", "c")
    assert engine.num_steps == 0


def test_a_single_refused_prompt_needs_no_number() -> None:
    with pytest.raises(RequestError, match=r"^the prompt has 9 tokens"):
        run(ListedEngine(refuse="a"), "a")


def test_choices_are_answers_of_their_own_after_those_of_the_prompt_before() -> None:
    params = SamplingParams(num_choices=2)
    asked = [Request(name, (1, 2, 3), params) for name in "ab"]
    engine = ListedEngine(
        [delta(name, "x", 1, choice=choice) for name, choice in (("a", 1), ("b", 0))],
        [
            delta(name, "y", count, FinishReason.STOP, choice=choice)
            for name, choice, count in (("a", 1, 2), ("a", 0, 3), ("b", 0, 4), ("b", 1, 5))
        ],
    )
    output, ticks = Heard(), itertools.count()
    outcomes = run_requests(engine, asked, output=output, clock=lambda: float(next(ticks)))
    assert [outcome.num_generated_tokens for outcome in outcomes] == [3, 2, 4, 5]
    assert output.events[:2] == [(1, "x"), (2, "x")]
