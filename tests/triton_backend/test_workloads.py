"""Random workloads: right answers, whole pools and nothing lost, whatever runs together."""

from types import SimpleNamespace

import pytest

from tests.triton_backend.workload import Run, check_workload, draw_workload
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams

PROGRAM = SimpleNamespace(
    Engine=Engine, EngineConfig=EngineConfig, Request=Request, SamplingParams=SamplingParams
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


def test_workloads_meet_everything_that_can_befall_a_request() -> None:
    """Guards the generator: a suite that never preempts proves nothing about preemption."""
    seen: dict[str, int] = {}
    for number in range(60):
        run = Run(PROGRAM, draw_workload(PROGRAM, number), number)
        plan = run.engine.scheduler.plan

        def counted(plan=plan):
            made = plan()
            seen["preempted"] = seen.get("preempted", 0) + len(made.preempted)
            chunks = sum(1 for item in made.scheduled if not item.has_logits)
            seen["chunks"] = seen.get("chunks", 0) + chunks
            return made

        run.engine.scheduler.plan = counted
        run.serve()
        for story in run.stories.values():
            reason = story.last.finish_reason
            seen[reason] = seen.get(reason, 0) + 1
            kind = type(story.last.stop_reason).__name__
            seen[kind] = seen.get(kind, 0) + 1
    wanted = {"preempted", "chunks", "stop", "length", "cancelled", "error", "int", "str"}
    assert {name for name, count in seen.items() if count >= 10} >= wanted, seen
