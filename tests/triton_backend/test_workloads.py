"""Random workloads: right answers, whole pools, closed domains and nothing lost, whatever runs together."""

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.triton_backend.serving_run import Run, check_workload
from tests.triton_backend.workload import POLICIES, draw_workload
from triton_backend.config import EngineConfig
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams


def constrain(divisor: int, shift: int) -> Constraint:
    return Constraint(ConstraintKind.CHOICE, f"{divisor} {shift}")


PROGRAM = SimpleNamespace(
    Engine=Engine,
    EngineConfig=EngineConfig,
    Request=Request,
    SamplingParams=SamplingParams,
    constrain=constrain,
)
SIZE = 20


@pytest.mark.parametrize("first", range(0, 200, SIZE))
def test_workloads_are_served_right(first: int) -> None:
    for number in range(first, first + SIZE):
        check_workload(PROGRAM, number)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(200, 2000, SIZE))
def test_more_workloads_are_served_right(first: int) -> None:
    for number in range(first, first + SIZE):
        check_workload(PROGRAM, number)


class Census:
    """Counts what befell the requests of a run."""

    def __init__(self, run: Run, seen: Counter[str]) -> None:
        self.run = run
        self.seen = seen
        self._plan = run.engine.scheduler.plan
        run.engine.scheduler.plan = self.plan

    def plan(self):
        made = self._plan()
        self.seen["preempted"] += len(made.preempted)
        self.seen["copied"] += len(made.block_copies)
        self.seen["chunks"] += sum(not item.num_rows for item in made.scheduled)
        self.seen["drafted"] += sum(len(item.drafted) for item in made.scheduled)
        if made.waits_for:
            self.seen[f"waits for {made.waits_for}"] += 1
        return made

    def serve(self) -> None:
        self.run.serve()
        metrics = self.run.engine.metrics
        self.seen["accepted"] += metrics.num_accepted_tokens
        self.seen["reused"] += metrics.num_hit_tokens
        self.seen["refused"] += metrics.refusals.total()
        self.seen[self.run.work.settings["policy"]] += 1
        for story in self.run.stories.values():
            self.seen[story.last.finish_reason] += 1
            self.seen[type(story.last.stop_reason).__name__] += 1
            self.seen["logprobs"] += bool(story.logprobs)
            self.seen["prompt logprobs"] += bool(story.prompt_logprobs)
            self.seen["constrained"] += story.request.params.constraint is not None
            self.seen["choices"] += story.choice > 0


def test_workloads_meet_everything_that_can_befall_a_request() -> None:
    """Guards the generator: a suite that never preempts proves nothing about preemption."""
    seen = Counter[str]()
    for number in range(100):
        Census(Run(PROGRAM, draw_workload(PROGRAM, number), number), seen).serve()
    wanted = {
        *("preempted", "copied", "chunks", "drafted", "accepted", "reused", "refused"),
        *("stop", "length", "cancelled", "timeout", "error", "int", "str"),
        *("logprobs", "prompt logprobs", "constrained", "choices", *POLICIES),
        *(f"waits for {reason}" for reason in ("slots", "blocks", "budget", "leader")),
    }
    assert {name for name, count in seen.items() if count >= 10} >= wanted, seen
