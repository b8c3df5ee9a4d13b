"""What the engine counts is exactly what happened, and exactly the sum of the records of its answers."""

import operator
from collections import Counter
from typing import Any

import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.errors import RequestError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import Clock, make_limits, make_request
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.engine_metrics import EngineMetrics
from triton_backend.histogram import Histogram
from triton_backend.reading import reading_of
from triton_backend.reasons import Refusal, WaitReason
from triton_backend.request import FinishReason
from triton_backend.timeline import RequestRecord

STEP_S = 1.0
SUMS = {
    "num_preemptions": operator.attrgetter("num_preemptions"),
    "num_hit_tokens": operator.attrgetter("num_cached_tokens"),
    "num_computed_tokens": operator.attrgetter("num_computed_tokens"),
    "num_computed_prompt_tokens": operator.attrgetter("num_computed_prompt_tokens"),
    "num_generated_tokens": operator.attrgetter("num_generated_tokens"),
    "num_drafted_tokens": operator.attrgetter("num_drafted_tokens"),
    "num_accepted_tokens": operator.attrgetter("num_accepted_tokens"),
    "num_admitted": lambda record: record.admitted_s is not None,
    "num_prompt_tokens": lambda record: record.num_prompt_tokens * (record.admitted_s is not None),
}
"""Counter to what each record adds to it."""


class TickingExecutor(ScriptedExecutor):
    """Takes one second of the clock for each step."""

    def __init__(self, clock: Clock, **limits: int) -> None:
        super().__init__(make_limits(**limits), block_size=4, vocab_size=50)
        self.clock = clock

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        self.clock.now += STEP_S
        return super().execute(step, asks)


class Stage:
    """An engine whose steps take one second, and the records of what it finished."""

    def __init__(self, *, config: EngineConfig | None = None, **limits: int) -> None:
        self.clock = Clock()
        executor = TickingExecutor(self.clock, **limits)
        self.engine = Engine(
            executor, end_token_ids=(), clock=self.clock, config=config, draw_seed=lambda: 0
        )
        self.records: list[RequestRecord] = []
        self.engine.metrics.on_record = self.records.append

    @property
    def metrics(self) -> EngineMetrics:
        return self.engine.metrics

    def submit(self, name: str, num_prompt: int, max_tokens: int, **about: Any) -> None:
        prompt = tuple(range(num_prompt))
        params = {"max_tokens": max_tokens, "num_choices": about.pop("num_choices", 1)}
        if "speculation" in about:
            params["speculation"] = about.pop("speculation")
        self.engine.submit(make_request(name, prompt, about={"domain": None, **about}, **params))

    def run(self) -> None:
        while self.engine.has_work:
            self.engine.step()


def reconcile(metrics: EngineMetrics, records: list[RequestRecord]) -> None:
    """Check each counter and the count of each histogram against the records."""
    assert metrics.num_open == 0
    assert metrics.num_submitted == len(records)
    assert metrics.ends == Counter(record.finish_reason for record in records)
    for name, part in SUMS.items():
        assert getattr(metrics, name) == sum(map(part, records)), name
    seconds = {
        "queue_s": [record.queue_s for record in records],
        "ttft_s": [record.ttft_s for record in records],
        "end_to_end_s": [
            record.end_to_end_s
            for record in records
            if record.finish_reason in (FinishReason.STOP, FinishReason.LENGTH)
        ],
    }
    for name, values in seconds.items():
        known = [value for value in values if value is not None]
        expected = Histogram(getattr(metrics, name).bounds)
        for value in known:
            expected.observe(value)
        assert getattr(metrics, name).counts == expected.counts, name
        assert getattr(metrics, name).total == pytest.approx(expected.total)
    gaps = [record.num_deliveries - 1 for record in records if record.num_deliveries]
    assert metrics.itl_s.count == sum(gaps)


def test_ten_scripted_requests_give_exactly_these_numbers() -> None:
    """Slots for four, a budget of 16 tokens; prompts of 8, answers of 3.

    Seconds:   0         1         2         3         4 ...
    r0, r1     prompt    2nd       3rd, over
    r2, r3               prompt, as the two left 14 of the budget: r2 whole, r3 a part
    """
    stage = Stage(max_num_seqs=4, max_num_tokens=16)
    for number in range(10):
        stage.submit(f"r{number}", 8, 3)
    with pytest.raises(RequestError):
        stage.submit("r0", 8, 3)
    with pytest.raises(RequestError):
        stage.submit("long", 2000, 3)
    assert stage.engine.cancel("r9")
    stage.engine.step()
    assert stage.metrics.num_admitted == 2
    assert stage.metrics.waits_for is WaitReason.BUDGET
    assert stage.metrics.num_computed_tokens == 16
    assert stage.metrics.ttft_s.total == 2.0
    stage.run()
    metrics = stage.metrics
    assert metrics.num_submitted == 10
    assert metrics.refusals == {Refusal.INVALID: 2}
    assert metrics.num_admitted == 9
    assert metrics.ends == {FinishReason.LENGTH: 9, FinishReason.CANCELLED: 1}
    assert metrics.num_prompt_tokens == metrics.num_computed_prompt_tokens == 72
    assert metrics.num_computed_tokens == 72 + 9 * 2
    assert metrics.num_generated_tokens == 27
    assert metrics.num_hit_tokens == metrics.num_preemptions == metrics.num_drafted_tokens == 0
    assert metrics.itl_s.count == 18
    assert metrics.itl_s.total == 18.0
    assert metrics.last_step_s == stage.clock.now == metrics.num_steps
    reconcile(metrics, stage.records)


def test_a_record_tells_the_life_of_an_answer() -> None:
    stage = Stage(max_num_seqs=1)
    stage.submit("first", 8, 3)
    stage.submit("second", 8, 2)
    stage.run()
    first, second = stage.records
    assert (first.queue_s, first.ttft_s, first.mean_itl_s, first.end_to_end_s) == (0, 1, 1, 3)
    assert (second.queue_s, second.ttft_s, second.mean_itl_s, second.end_to_end_s) == (3, 4, 1, 5)
    assert (second.request_id, second.choice) == ("second", 0)
    assert second.finish_reason is FinishReason.LENGTH
    assert (second.num_prompt_tokens, second.num_generated_tokens) == (8, 2)


def test_those_who_wait_are_told_by_what_the_first_of_them_lacks() -> None:
    stage = Stage(max_num_seqs=1)
    assert reading_of(stage.metrics, stage.engine.scheduler).num_waiting == 0
    stage.submit("first", 8, 3)
    stage.submit("second", 8, 2)
    told = reading_of(stage.metrics, stage.engine.scheduler)
    assert (told.num_running, told.num_waiting, told.waits_for) == (0, 2, "step")
    stage.engine.step()
    told = reading_of(stage.metrics, stage.engine.scheduler)
    assert (told.num_running, told.num_waiting, told.waits_for) == (1, 1, "slots")
    assert told.num_used_blocks == 2
    stage.run()
    assert reading_of(stage.metrics, stage.engine.scheduler).num_used_blocks == 0


def test_a_full_pool_is_what_the_next_one_waits_for() -> None:
    stage = Stage(num_blocks=6)
    stage.submit("first", 12, 3)
    stage.submit("second", 12, 3)
    stage.engine.step()
    assert stage.metrics.waits_for is WaitReason.BLOCKS


def test_choices_count_one_by_one_and_wait_for_their_leader() -> None:
    stage = Stage(max_num_tokens=4)
    stage.submit("many", 8, 2, num_choices=3, domain=b"a")
    stage.engine.step()
    assert stage.metrics.num_submitted == 3
    assert stage.metrics.waits_for in (WaitReason.LEADER, WaitReason.BUDGET)
    stage.run()
    assert sorted(record.choice for record in stage.records) == [0, 1, 2]
    assert stage.metrics.num_hit_tokens > 0
    reconcile(stage.metrics, stage.records)


def test_preempted_answers_compute_again_and_are_counted_once() -> None:
    stage = Stage(num_blocks=9)
    for number in range(3):
        stage.submit(f"r{number}", 8, 12)
    stage.run()
    metrics = stage.metrics
    assert metrics.num_preemptions > 0
    assert metrics.num_admitted == 3
    assert metrics.num_generated_tokens == 36
    assert metrics.num_computed_tokens > 3 * (8 + 11)
    # Whoever lost its blocks computes prompt and answer in one step again; the answer is no part of the prompt.
    assert metrics.num_prompt_tokens == 24
    assert metrics.num_computed_prompt_tokens == 8 * (3 + metrics.num_preemptions)
    reconcile(metrics, stage.records)


def test_a_prompt_that_is_reused_is_not_computed() -> None:
    stage = Stage()
    for name in ("cold", "warm"):
        stage.submit(name, 17, 1, domain=b"a")
        stage.run()
    cold, warm = stage.records
    assert (cold.num_cached_tokens, warm.num_cached_tokens) == (0, 16)
    assert warm.num_computed_prompt_tokens == 1
    told = reading_of(stage.metrics, stage.engine.scheduler)
    assert (told.num_used_blocks, told.num_cached_blocks) == (0, 4)
    reconcile(stage.metrics, stage.records)


def test_a_full_queue_and_a_passed_deadline_have_counters_of_their_own() -> None:
    stage = Stage(max_num_seqs=1, config=EngineConfig(max_waiting=1))
    stage.submit("first", 8, 5)
    stage.submit("second", 8, 5, deadline_s=1.5)
    with pytest.raises(RequestError):
        stage.submit("third", 8, 5)
    stage.run()
    assert stage.metrics.refusals == {Refusal.QUEUE_FULL: 1}
    assert stage.metrics.ends == {FinishReason.LENGTH: 1, FinishReason.TIMEOUT: 1}
    late = next(r for r in stage.records if r.finish_reason is FinishReason.TIMEOUT)
    assert late.queue_s is late.ttft_s is late.mean_itl_s is None
    assert stage.metrics.end_to_end_s.count == 1
    reconcile(stage.metrics, stage.records)


def test_drafts_are_counted_as_proposed_and_accepted() -> None:
    stage = Stage(config=EngineConfig(speculation=True))
    stage.submit("guessed", 8, 60)
    stage.run()
    metrics = stage.metrics
    assert metrics.num_generated_tokens == 60
    assert metrics.num_accepted_tokens <= metrics.num_drafted_tokens
    assert metrics.itl_s.count == 60 - metrics.num_accepted_tokens - 1
    reconcile(metrics, stage.records)


def test_a_step_that_fails_ends_those_who_ran_and_no_one_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = Stage(max_num_seqs=1)
    stage.submit("first", 8, 3)
    stage.submit("second", 8, 3)
    with monkeypatch.context() as broken:
        broken.setattr(TickingExecutor, "execute", None)
        stage.engine.step()
    stage.run()
    assert stage.metrics.ends == {FinishReason.ERROR: 1, FinishReason.LENGTH: 1}
    assert stage.metrics.num_steps == 4
    assert stage.metrics.num_open == 0


def test_an_engine_counts_from_its_own_beginning() -> None:
    """A warm-up in another engine leaves no trace: there is nothing to reset."""
    warm = Stage()
    warm.submit("warm-up", 8, 3)
    warm.run()
    fresh = Stage().metrics
    fresh.on_record = None
    assert fresh == EngineMetrics()
