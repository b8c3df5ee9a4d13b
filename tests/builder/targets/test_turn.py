"""An executor is used by one thread: a second one is refused while a step runs, and closing waits for it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builder import targets
from builder.artifact.step import StepResult
from builder.artifact.store import Artifact
from builder.errors import EngineError
from builder.targets.cpu import execute as cpu
from builder.targets.executor import Executor
from builder.targets.portable import execute as portable
from builder.targets.turn import Turn
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

INSIDE = {"cpu": cpu, "portable": portable}


class Gate:
    """Holds a step up, once it has begun, until it is let go on."""

    def __init__(self, check: Callable[..., None]) -> None:
        self.begun, self.goes_on = threading.Event(), threading.Event()
        self._check = check

    def __call__(self, *arguments: Any, **named: Any) -> None:
        self._check(*arguments, **named)
        self.begun.set()
        assert self.goes_on.wait(60)


@pytest.fixture(scope="module", params=sorted(INSIDE))
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    folder = tmp_path_factory.mktemp("built") / "artifact"
    return compile_model(model, folder, target=request.param, max_num_seqs=8)


@pytest.fixture
def gate(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> Gate:
    module = INSIDE[artifact.manifest.engines[0].target]
    gate = Gate(module.check_step)
    monkeypatch.setattr(module, "check_step", gate)
    return gate


def run_one(executor: Executor) -> StepResult:
    """Run one step of one token, without a look at its row."""
    runner = PagedRunner(executor)
    runner._extend("a", 1)
    return executor.execute(runner._lay_out([("a", [1])], [1]), runner._asks(1))


def test_a_second_thread_is_refused_and_the_first_gets_its_step(
    artifact: Artifact, gate: Gate
) -> None:
    executor = targets.open_executor(artifact, threads=1)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(PagedRunner(executor).whole, [1, 2, 3])
        assert gate.begun.wait(60)
        with pytest.raises(EngineError, match="running a step; an executor is used by one thread"):
            PagedRunner(executor).whole([4])
        gate.goes_on.set()
        logits = first.result()
    np.testing.assert_array_equal(PagedRunner(executor).whole([1, 2, 3]), logits)
    executor.close()


def test_closing_waits_for_the_step_that_runs(artifact: Artifact, gate: Gate) -> None:
    executor = targets.open_executor(artifact, threads=1)
    with ThreadPoolExecutor(2) as pool:
        step = pool.submit(run_one, executor)
        assert gate.begun.wait(60)
        closing = pool.submit(executor.close)
        with pytest.raises(TimeoutError):
            closing.result(timeout=0.05)
        gate.goes_on.set()
        assert step.result().argmax[0] >= 0
        closing.result()
    with pytest.raises(EngineError, match="closed"):
        PagedRunner(executor).whole([4])


def test_rows_are_not_read_while_another_thread_runs_a_step(tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "model"), tmp_path / "built", max_num_seqs=8)
    executor = targets.open_executor(built, threads=1)
    result = run_one(executor)
    assert isinstance(executor, cpu.CpuExecutor)
    with ThreadPoolExecutor(1) as pool, executor._turn:
        for read in (lambda: result.full_row(0), lambda: result.likeliest([0], 3)):
            with pytest.raises(EngineError, match="one thread"):
                pool.submit(read).result()
    assert result.full_row(0).argmax() == result.argmax[0]
    executor.close()


def test_a_turn_that_an_interrupt_left_taken_is_its_thread_s_to_end() -> None:
    turn = Turn()
    turn.__enter__()
    with turn.lock:
        pass
