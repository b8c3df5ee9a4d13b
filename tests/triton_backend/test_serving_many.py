"""The engine when many share it: choices, deadlines, a full queue, erased domains, drafts, and what it counts."""

import logging
from typing import Any

import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.errors import EngineError, QueueFullError, RequestError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.fakes import FakeText
from tests.triton_backend.making import Clock, make_limits
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.engine_metrics import Refusal
from triton_backend.kv.events import Cleared, Removed, Stored
from triton_backend.request import Delta, FinishReason, Request, SamplingParams

VOCAB = 50
PROMPT = tuple(range(3, 14))


class FailingExecutor(ScriptedExecutor):
    """Fails when it is told to."""

    failure: BaseException | None = None

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        return super().execute(step, asks)


def make_engine(
    *, settings: dict[str, Any] | None = None, limits: dict[str, int] | None = None, **given: Any
) -> Engine:
    executor = FailingExecutor(make_limits(**(limits or {})), block_size=4, vocab_size=VOCAB)
    engine = Engine(executor, end_token_ids=(), config=EngineConfig(**(settings or {})), **given)
    engine.executor = executor  # type: ignore[attr-defined]
    return engine


def request(name: str = "a", prompt: tuple[int, ...] = PROMPT, **given: Any) -> Request:
    about = {key: given.pop(key) for key in ("domain", "store", "deadline_s") if key in given}
    params = SamplingParams(**{"temperature": 0, "max_tokens": 6, **given})
    return Request(name, prompt, params, **about)


def drain(engine: Engine) -> dict[tuple[str, int], list[Delta]]:
    heard: dict[tuple[str, int], list[Delta]] = {}
    while engine.has_work:
        for delta in engine.step():
            heard.setdefault((delta.request_id, delta.choice), []).append(delta)
    return heard


def answer(engine: Engine, asked: Request) -> list[Delta]:
    engine.submit(asked)
    return drain(engine)[asked.request_id, 0]


def token_ids(deltas: list[Delta]) -> tuple[int, ...]:
    return tuple(token_id for delta in deltas for token_id in delta.token_ids)


def test_a_warm_answer_is_the_cold_one_and_says_how_much_was_cached() -> None:
    engine = make_engine()
    cold, warm = (answer(engine, request(name, logprobs=2)) for name in "ab")
    assert token_ids(cold) == token_ids(warm)
    assert [delta.logprobs for delta in cold] == [delta.logprobs for delta in warm]
    assert {delta.num_cached_tokens for delta in cold} == {0}
    assert {delta.num_cached_tokens for delta in warm} == {10}


def test_without_prefix_reuse_nothing_is_cached() -> None:
    engine = make_engine(settings={"prefix_reuse": False})
    answer(engine, request("a"))
    assert engine.scheduler.cache.num_cached == 0
    assert answer(engine, request("b"))[0].num_cached_tokens == 0


def test_prompt_logprobs_are_the_same_cold_and_warm_and_split_over_steps() -> None:
    wide = make_engine()
    answer(wide, request("first"))
    narrow = make_engine(limits={"max_logit_rows": 3})
    told = [
        answer(engine, request("a", prompt_logprobs=2))[0].prompt_logprobs
        for engine in (make_engine(), wide, narrow)
    ]
    assert len(told[0]) == len(PROMPT) - 1
    assert told[0] == told[1] == told[2]


def test_each_choice_is_an_answer_of_its_own_and_the_last_delta_says_so() -> None:
    engine = make_engine(limits={"max_num_seqs": 2})
    engine.submit(request(num_choices=4, temperature=50, seed=1))
    heard = drain(engine)
    assert sorted(heard) == [("a", choice) for choice in range(4)]
    assert len({token_ids(deltas) for deltas in heard.values()}) == 4
    everything = [delta for deltas in heard.values() for delta in deltas]
    assert sum(delta.is_last for delta in everything) == 1
    assert sum(delta.finish_reason is not None for delta in everything) == 4


def test_the_first_choice_is_the_answer_without_others() -> None:
    engine = make_engine()
    alone = answer(engine, request(temperature=50, seed=1))
    engine.submit(request(num_choices=3, temperature=50, seed=1))
    assert token_ids(drain(engine)["a", 0]) == token_ids(alone)


def test_cancelling_ends_all_choices_at_once() -> None:
    stage = FakeText()
    engine = make_engine(text_stage=stage, limits={"max_num_seqs": 2})
    engine.submit(request(num_choices=3))
    for _ in range(3):
        engine.step()
    deltas = engine.cancel("a")
    assert [delta.choice for delta in deltas] == [0, 1, 2]
    assert [delta.is_last for delta in deltas] == [False, False, True]
    assert {delta.finish_reason for delta in deltas} == {FinishReason.CANCELLED}
    assert engine.scheduler.cache.num_held == 0
    assert not engine.has_work
    assert not stage.live


def test_a_text_stage_that_refuses_a_later_choice_is_left_clean() -> None:
    class Picky(FakeText):
        def start(self, answer_id, request):
            if answer_id[1] == 2:
                raise RequestError("no more")
            super().start(answer_id, request)

    stage = Picky()
    engine = make_engine(text_stage=stage)
    with pytest.raises(RequestError, match="no more"):
        engine.submit(request(num_choices=3))
    assert (len(stage), engine.has_work) == (0, False)
    assert engine.metrics.refusals == {Refusal.INVALID: 1}


def test_a_deadline_ends_answers_running_and_waiting() -> None:
    clock = Clock()
    engine = make_engine(clock=clock, limits={"max_num_seqs": 1})
    engine.submit(request("runs", deadline_s=5.0))
    engine.submit(request("waits", deadline_s=6.0))
    engine.submit(request("stays"))
    engine.step()
    engine.step()
    clock.now = 5.0
    (late, _) = engine.step()
    assert (late.request_id, late.finish_reason) == ("runs", FinishReason.TIMEOUT)
    assert late.error == "the deadline passed after 2 generated tokens."
    assert (late.num_generated_tokens, late.is_last) == (2, True)
    clock.now = 100.0
    deltas = engine.step()
    assert [delta.finish_reason for delta in deltas] == [FinishReason.TIMEOUT, None]
    assert deltas[0].error == "the deadline passed after 1 generated tokens."
    assert drain(engine)["stays", 0][-1].finish_reason == FinishReason.LENGTH


def test_when_all_are_late_no_step_is_computed() -> None:
    clock = Clock()
    engine = make_engine(clock=clock)
    engine.submit(request(deadline_s=1.0))
    clock.now = 2.0
    assert [delta.finish_reason for delta in engine.step()] == [FinishReason.TIMEOUT]
    assert (engine.has_work, engine.metrics.num_steps) == (False, 0)


def test_a_full_queue_refuses_at_once_and_takes_more_later() -> None:
    engine = make_engine(settings={"max_waiting": 4}, limits={"max_num_seqs": 3})
    refused = []
    for number in range(50):
        try:
            engine.submit(request(f"r{number}"))
        except QueueFullError as error:
            refused.append(str(error))
    assert len(refused) == 50 - 3 - 4
    assert engine.metrics.refusals == {Refusal.QUEUE_FULL: 43}
    assert len(drain(engine)) == 7
    engine.submit(request("later"))


def test_an_erased_domain_is_forgotten_and_its_running_requests_leave_nothing() -> None:
    engine = make_engine()
    answer(engine, request("a", domain=b"one"))
    answer(engine, request("b", domain=b"other"))
    engine.submit(request("c", domain=b"one", max_tokens=12))
    engine.step()
    erased = engine.erase_domain(b"one")
    assert erased >= 2
    assert len(drain(engine)["c", 0]) == 11
    assert engine.erase_domain(b"one") == 0
    assert answer(engine, request("d", domain=b"one"))[0].num_cached_tokens == 0
    assert answer(engine, request("e", domain=b"other"))[0].num_cached_tokens == 10


def test_what_becomes_of_cached_blocks_can_be_followed() -> None:
    engine = make_engine()
    heard = engine.events.subscribe()
    answer(engine, request())
    engine.erase_domain(b"")
    answer(engine, request())
    engine.executor.failure = EngineError("broken")  # type: ignore[attr-defined]
    engine.submit(request())
    engine.step()
    kinds = [type(event) for _, event in heard.drain().events]
    assert kinds[0] is Stored
    assert Removed in kinds
    assert kinds[-1] is Cleared


def test_after_a_failed_step_nothing_is_reused() -> None:
    engine = make_engine()
    before = answer(engine, request("a"))
    engine.submit(request("b"))
    engine.executor.failure = EngineError("broken")  # type: ignore[attr-defined]
    (failed,) = engine.step()
    assert (failed.finish_reason, failed.is_last) == (FinishReason.ERROR, True)
    after = answer(engine, request("c"))
    assert after[0].num_cached_tokens == 0
    assert token_ids(after) == token_ids(before)


def test_a_failure_is_logged_without_its_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    engine = make_engine()
    engine.submit(request())
    engine.executor.failure = ValueError("words of a prompt")  # type: ignore[attr-defined]
    engine.step()
    assert "a step of 1 sequences failed: ValueError" in caplog.text
    assert "words" not in caplog.text


def test_an_interrupted_step_is_computed_again_from_nothing() -> None:
    engine = make_engine()
    expected = token_ids(answer(engine, request("a")))
    engine.submit(request("b"))
    engine.executor.failure = KeyboardInterrupt()  # type: ignore[attr-defined]
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert engine.scheduler.cache.num_held == 0
    assert token_ids(drain(engine)["b", 0]) == expected


def biased(name: str, **given: Any) -> Request:
    """A request whose answer repeats itself, so that drafts are accepted."""
    biases = tuple((token_id, 60.0) for token_id in (7, 8))
    return request(name, logit_bias=biases, max_tokens=60, logprobs=1, **given)


def test_drafts_change_nothing_but_the_number_of_steps() -> None:
    engine = make_engine()
    plain = answer(engine, biased("a", speculation=False))
    plain_steps = engine.metrics.num_steps
    drafted = answer(engine, biased("a", speculation=True))
    assert token_ids(plain) == token_ids(drafted)
    assert [told for delta in plain for told in delta.logprobs] == [
        told for delta in drafted for told in delta.logprobs
    ]
    assert engine.metrics.num_steps - plain_steps < plain_steps
    assert 0 < engine.metrics.num_accepted_tokens <= engine.metrics.num_drafted_tokens


def test_requests_draft_as_the_engine_is_set_unless_they_say() -> None:
    for setting, asked, drafts in (
        (True, None, True),
        (True, False, False),
        (False, None, False),
        (False, True, True),
    ):
        engine = make_engine(settings={"speculation": setting})
        answer(engine, biased("a", speculation=asked))
        assert (engine.metrics.num_drafted_tokens > 0) is drafts


def test_what_is_counted_adds_up() -> None:
    engine = make_engine(limits={"max_num_seqs": 2})
    records: list[Any] = []
    engine.metrics.on_record = records.append
    engine.submit(request("a", num_choices=2))
    engine.submit(request("b"))
    drain(engine)
    metrics = engine.metrics
    assert (metrics.num_submitted, metrics.num_admitted, metrics.num_open) == (3, 3, 0)
    assert metrics.num_generated_tokens == 18 == sum(one.num_generated_tokens for one in records)
    assert metrics.num_hit_tokens == 20
    assert metrics.num_computed_prompt_tokens == 3 * len(PROMPT) - 20
