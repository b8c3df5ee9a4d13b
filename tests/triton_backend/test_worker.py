"""The worker over the scripted engine: commands between steps, news after them, silence without work."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.making import make_limits
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.messages import Pong, RefusalKind
from triton_backend.reading import reading_of
from triton_backend.request import Delta, FinishReason, Request, SamplingParams
from triton_backend.worker import Worker

VOCAB = 50
PATIENCE_S = 30


class GatedExecutor(ScriptedExecutor):
    """Begins a step only when the test lets it."""

    def __init__(self, **limits: int) -> None:
        super().__init__(make_limits(**limits), block_size=4, vocab_size=VOCAB)
        self.begun = threading.Semaphore(0)
        self.allowed = threading.Semaphore(0)

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        self.begun.release()
        assert self.allowed.acquire(timeout=PATIENCE_S)
        return super().execute(step, asks)

    def let(self, num_steps: int = 1) -> None:
        self.allowed.release(num_steps)

    def await_step(self) -> None:
        assert self.begun.acquire(timeout=PATIENCE_S)


class Ears:
    """A listener that keeps what it hears, and can be waited on."""

    def __init__(self) -> None:
        self.deltas: list[Delta] = []
        self.refusals: list[tuple[str, RefusalKind, str]] = []
        self.changed = threading.Condition()

    def hear(self, deltas: list[Delta]) -> None:
        with self.changed:
            self.deltas += deltas
            self.changed.notify_all()

    def refuse(self, request_id: str, kind: RefusalKind, message: str) -> None:
        with self.changed:
            self.refusals.append((request_id, kind, message))
            self.changed.notify_all()

    def wait_for(self, condition: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, PATIENCE_S)

    def of(self, request_id: str) -> list[Delta]:
        return [delta for delta in self.deltas if delta.request_id == request_id]

    def ended(self, request_id: str) -> bool:
        return any(delta.finish_reason for delta in self.of(request_id))


class Stage:
    """A worker that runs in a thread of its own."""

    def __init__(
        self,
        *,
        gated: bool = False,
        max_waiting: int = 3,
        cache_ttl_s: float | None = None,
        **limits: int,
    ) -> None:
        plain = ScriptedExecutor(make_limits(**limits), block_size=4, vocab_size=VOCAB)
        self.executor: Any = GatedExecutor(**limits) if gated else plain
        config = EngineConfig(max_waiting=max_waiting, cache_ttl_s=cache_ttl_s)
        self.engine = Engine(self.executor, end_token_ids=(), config=config)
        self.ears = Ears()
        self.worker = Worker(self.engine, self.ears)
        self.thread = threading.Thread(target=self.worker.run, daemon=True)

    def pong(self) -> Pong:
        answers: list[Pong] = []
        answered = threading.Event()

        def take(pong: Pong) -> None:
            answers.append(pong)
            answered.set()

        self.worker.inquire(take)
        assert answered.wait(PATIENCE_S)
        return answers[0]


@pytest.fixture
def make_stage() -> Iterator[Callable[..., Stage]]:
    made: list[Stage] = []

    def make(**given: Any) -> Stage:
        made.append(Stage(**given))
        made[-1].thread.start()
        return made[-1]

    yield make
    for stage in made:
        stage.worker.stop()
        if isinstance(stage.executor, GatedExecutor):
            stage.executor.let(1000)
        stage.thread.join(PATIENCE_S)
        assert not stage.thread.is_alive()


def request(name: str, **params: Any) -> Request:
    return Request(name, (3, 1, 4), SamplingParams(**{"temperature": 0, "max_tokens": 6, **params}))


def test_requests_of_many_threads_are_all_served_as_the_engine_alone_would(make_stage) -> None:
    stage = make_stage()
    names = [f"r{index}" for index in range(30)]
    threads = [
        threading.Thread(target=stage.worker.submit, args=(request(name),)) for name in names
    ]
    for thread in threads:
        thread.start()
    stage.ears.wait_for(lambda: all(map(stage.ears.ended, names)))
    alone = Engine(
        ScriptedExecutor(make_limits(), block_size=4, vocab_size=VOCAB), end_token_ids=()
    )
    alone.submit(request("alone"))
    expected = [delta.token_ids for _ in range(6) for delta in alone.step()]
    for name in names:
        assert [delta.token_ids for delta in stage.ears.of(name)] == expected
    assert stage.ears.refusals == []


def test_a_cancel_takes_effect_before_the_next_step(make_stage) -> None:
    stage = make_stage(gated=True)
    stage.worker.submit(request("a", max_tokens=100))
    stage.worker.submit(request("b", max_tokens=100))
    stage.executor.await_step()
    stage.executor.let()
    stage.executor.await_step()  # the second step is under way
    stage.worker.cancel("a")
    stage.executor.let()
    stage.executor.await_step()  # the third has begun
    assert stage.ears.of("a")[-1].finish_reason is FinishReason.CANCELLED
    assert [sequence.request.request_id for sequence in stage.engine.scheduler.running] == ["b"]


def test_a_request_that_arrives_during_a_step_is_in_the_next(make_stage) -> None:
    stage = make_stage(gated=True)
    stage.worker.submit(request("a"))
    stage.executor.await_step()
    stage.worker.submit(request("b"))
    stage.executor.let()
    stage.executor.await_step()
    running = [sequence.request.request_id for sequence in stage.engine.scheduler.running]
    assert running == ["a", "b"]


def test_a_request_cancelled_before_it_was_taken_gets_no_token(make_stage) -> None:
    stage = make_stage(gated=True)
    stage.worker.submit(request("a", max_tokens=2))
    stage.executor.await_step()
    stage.worker.submit(request("b"))
    stage.worker.cancel("b")
    stage.executor.let(2)
    stage.ears.wait_for(lambda: stage.ears.ended("a") and stage.ears.ended("b"))
    (delta,) = stage.ears.of("b")
    assert (delta.token_ids, delta.finish_reason) == ((), FinishReason.CANCELLED)


def test_cancelling_what_is_unknown_or_over_is_no_news(make_stage) -> None:
    stage = make_stage()
    stage.worker.cancel("nobody")
    stage.worker.submit(request("a"))
    stage.ears.wait_for(lambda: stage.ears.ended("a"))
    stage.worker.cancel("a")
    assert stage.pong().num_running == 0
    assert len(stage.ears.of("a")) == 6


def test_a_request_that_can_never_be_served_is_refused_as_invalid(make_stage) -> None:
    stage = make_stage()
    stage.worker.submit(request("a", max_tokens=998))
    stage.ears.wait_for(lambda: bool(stage.ears.refusals))
    ((name, kind, message),) = stage.ears.refusals
    assert (name, kind) == ("a", RefusalKind.INVALID)
    assert "exceed max_seq_len 1000" in message


def test_a_full_queue_turns_newcomers_away(make_stage) -> None:
    stage = make_stage(gated=True, max_num_seqs=1)
    stage.worker.submit(request("a", max_tokens=3))
    stage.executor.await_step()
    for name in ("b", "c", "d", "e"):
        stage.worker.submit(request(name, max_tokens=1))
    stage.executor.let(100)
    stage.ears.wait_for(lambda: stage.ears.ended("d"))
    ((name, kind, message),) = stage.ears.refusals
    assert (name, kind) == ("e", RefusalKind.UNAVAILABLE)
    assert message.startswith("the queue is full: 3 answers wait already")
    assert message.endswith("(max_waiting 3); try again later.")


def test_a_failure_while_admitting_fails_one_request_and_quotes_nothing(
    make_stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    stage = make_stage()
    submit = stage.engine.submit
    quote = "words of the prompt"

    def broken(taken: Request) -> None:
        if taken.request_id == "bad":
            raise ValueError(quote)
        submit(taken)

    monkeypatch.setattr(stage.engine, "submit", broken)
    stage.worker.submit(request("bad"))
    stage.worker.submit(request("good"))
    stage.ears.wait_for(lambda: stage.ears.ended("good"))
    assert stage.ears.refusals == [
        ("bad", RefusalKind.INTERNAL, "admitting the request failed with ValueError.")
    ]
    assert quote not in caplog.text
    assert "ValueError" in caplog.text


def test_the_pong_counts_what_is_there(make_stage) -> None:
    stage = make_stage(num_blocks=40)
    assert stage.pong() == reading_of(stage.engine.metrics, stage.engine.scheduler)
    assert stage.pong().num_blocks == 39
    stage.worker.submit(request("a"))
    stage.worker.submit(request("b", max_tokens=4))
    stage.ears.wait_for(lambda: stage.ears.ended("a") and stage.ears.ended("b"))
    pong = stage.pong()
    assert (pong.num_running, pong.num_used_blocks) == (0, 0)
    assert pong.counters["num_generated_tokens"] == 10
    assert 6 <= pong.counters["num_steps"] <= 10


def test_an_idle_worker_takes_no_time_of_the_processor(make_stage) -> None:
    stage = make_stage()
    stage.worker.submit(request("a"))
    stage.ears.wait_for(lambda: stage.ears.ended("a"))
    stage.pong()
    clock = time.pthread_getcpuclockid(stage.thread.ident)
    before = time.clock_gettime(clock)
    threading.Event().wait(0.3)
    assert time.clock_gettime(clock) - before < 0.03


def test_stop_ends_the_worker_though_requests_run(make_stage) -> None:
    stage = make_stage(gated=True)
    stage.worker.submit(request("a", max_tokens=100))
    stage.executor.await_step()
    stage.worker.stop()
    stage.executor.let()
    stage.thread.join(PATIENCE_S)
    assert not stage.thread.is_alive()
    assert len(stage.ears.of("a")) == 1


def test_a_defect_of_the_engine_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()

    def broken() -> None:
        raise AssertionError("the scheduler lost a block")

    monkeypatch.setattr(stage.engine.scheduler, "plan", broken)
    stage.worker.submit(request("a"))
    with pytest.raises(AssertionError, match="lost a block"):
        stage.worker.run()


def test_what_is_cached_has_its_time_though_nobody_asks_for_anything(make_stage) -> None:
    stage = make_stage(cache_ttl_s=0.2)
    stage.worker.submit(Request("a", tuple(range(20)), SamplingParams(max_tokens=2)))
    stage.ears.wait_for(lambda: stage.ears.ended("a"))
    deadline = time.monotonic() + PATIENCE_S
    while stage.engine.scheduler.cache.num_cached:
        assert time.monotonic() < deadline
        threading.Event().wait(0.01)
    assert stage.engine.rest_s is None
