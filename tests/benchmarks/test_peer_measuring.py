"""What a worker measures, with an engine that only counts."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from peer_engines.comparison import flat
from peer_engines.measuring import (
    NUM_OWN,
    NUM_SHARED,
    SIZES,
    Prompt,
    Task,
    answer_tps,
    draw,
    measure,
    prompt_figures,
    run,
)
from peer_engines.memory import PeakMemory

TASK = Task(Path("model"), threads=2, seed=3, quick=True)
IDS = Random(0)  # noqa: S311


class Counting:
    """Writes down what it is asked, and gives as many tokens as it is asked for, less some."""

    def __init__(self, task: Task, *, missing: int = 0) -> None:
        del task
        self._missing = missing
        self.answered: list[tuple[int, int]] = []
        self.shared: list[Prompt] = []
        self.prompts: list[Prompt] = []

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        self.answered.append((len(prompts), num_tokens))
        self.prompts += prompts
        return len(prompts) * num_tokens - self._missing

    def remember(self, shared: Prompt) -> None:
        self.shared.append(shared)

    def first_token(self, prompt: Prompt) -> None:
        self.prompts.append(prompt)


def test_a_worker_prints_one_line_with_every_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["worker", "model", "--quick", "--seed", "1"])
    run(Counting)
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert min(flat(json.loads(printed)).values()) >= 0


def test_the_same_seed_asks_every_engine_the_same() -> None:
    engines = [Counting(TASK), Counting(TASK)]
    for engine in engines:
        measure(lambda _task, engine=engine: engine, TASK)
    assert engines[0].prompts == engines[1].prompts


def test_all_sizes_are_answered() -> None:
    engine = Counting(TASK)
    measure(lambda _task: engine, TASK)
    assert set(SIZES) <= {size for size, _ in engine.answered}


def test_a_warm_prompt_begins_with_what_is_remembered() -> None:
    engine = Counting(TASK)
    prompt_figures(engine, IDS, runs=2)
    cold, warm = engine.prompts[:2], engine.prompts[2:]
    assert [prompt[:NUM_SHARED] for prompt in warm] == engine.shared
    assert {len(prompt) for prompt in cold + warm} == {NUM_SHARED + NUM_OWN}


def test_prompts_share_no_beginning() -> None:
    assert len({tuple(draw(IDS, 8)) for _ in range(200)}) == 200


def test_an_engine_that_ends_early_is_not_timed() -> None:
    with pytest.raises(SystemExit, match="15 tokens came for 4 answers of 4"):
        answer_tps(Counting(TASK, missing=1), IDS, size=4, num_tokens=4)


def test_memory_that_came_and_went_is_in_the_peak() -> None:
    memory = PeakMemory()
    with memory:
        held = bytearray(b"x") * (64 << 20)
        while memory.own_mb < 64:
            pass
        del held
    assert memory.peak_mb >= memory.own_mb >= 64
