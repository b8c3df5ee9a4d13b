"""What the engine refuses, and what becomes of requests when a step fails."""

import logging

import numpy as np
import pytest

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.errors import ArtifactError, EngineError, RequestError
from builder.targets.executor import result_from_rows
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.engines import (
    VOCAB,
    drain,
    failing_engine,
    make_engine,
    request,
)
from tests.triton_backend.making import make_limits
from triton_backend.request import FinishReason, Request


class ConstantExecutor(ScriptedExecutor):
    """Gives the same logits for every row."""

    row = np.zeros(VOCAB, np.float32)

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        return result_from_rows(np.tile(self.row, (len(step.logit_rows), 1)), asks)


REFUSED: list[tuple[Request, str]] = [
    (request(prompt=()), "the prompt must have at least 1 token"),
    (request(prompt=(3, VOCAB)), r"prompt_token_ids\[1\] must be an id from 0 to 49; got 50"),
    (request(prompt=(-1,)), r"prompt_token_ids\[0\] must be an id from 0 to 49; got -1"),
    (request(stop_token_ids=(99,)), r"stop_token_ids\[0\] must be an id from 0 to 49; got 99"),
    (request(max_tokens=996), "exceed max_seq_len 1000"),
    (request(stop=("x",)), "stop strings need text"),
]


@pytest.mark.parametrize(("refused", "message"), REFUSED)
def test_a_request_that_cannot_be_served_is_refused_and_leaves_nothing(
    refused: Request, message: str
) -> None:
    engine = make_engine()
    with pytest.raises(RequestError, match=message):
        engine.submit(refused)
    assert not engine.has_work
    engine.submit(request())
    assert drain(engine)["a"][-1].finish_reason == FinishReason.LENGTH


def test_an_id_in_use_is_refused_and_one_that_is_over_is_not() -> None:
    engine = make_engine()
    engine.submit(request())
    with pytest.raises(RequestError, match="request_id 'a' is in use; choose another"):
        engine.submit(request())
    assert len(drain(engine)["a"]) == 6
    engine.submit(request())
    assert len(drain(engine)["a"]) == 6


def test_end_ids_must_be_in_the_vocabulary() -> None:
    with pytest.raises(ArtifactError, match="end token id 50 is not in the vocabulary of 50 ids"):
        make_engine(end_ids=[2, 50])


def test_a_failed_step_ends_those_who_run_and_spares_those_who_wait(
    caplog: pytest.LogCaptureFixture,
) -> None:
    engine = failing_engine({2: EngineError("the plan broke")}, max_num_seqs=2)
    for name in "abc":
        engine.submit(request(name))
    engine.step()
    failed = engine.step()
    assert [(delta.request_id, delta.error) for delta in failed] == [
        ("a", "the engine failed: the plan broke"),
        ("b", "the engine failed: the plan broke"),
    ]
    assert {delta.finish_reason for delta in failed} == {FinishReason.ERROR}
    assert engine.scheduler.cache.num_held == 0
    assert "a step of 2 sequences failed: the plan broke" in caplog.text
    assert "in execute" in caplog.text, "where it failed"
    heard = drain(engine)
    assert set(heard) == {"c"}
    assert heard["c"][-1].finish_reason == FinishReason.LENGTH


def test_a_failure_of_another_kind_is_told_by_its_type_alone() -> None:
    engine = failing_engine({1: ValueError("whatever a library says")})
    engine.submit(request())
    (delta,) = engine.step()
    assert delta.error == "the engine failed: ValueError"


def test_the_engine_serves_on_after_a_failure(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    engine = failing_engine({1: ValueError(), 3: ValueError()})
    seen = []
    for number in range(3):
        engine.submit(request(f"r{number}"))
        seen.append(drain(engine)[f"r{number}"][-1].finish_reason)
    assert seen == [FinishReason.ERROR, FinishReason.ERROR, FinishReason.LENGTH]


def test_an_interrupt_is_not_swallowed() -> None:
    engine = failing_engine({1: KeyboardInterrupt()})
    engine.submit(request())
    with pytest.raises(KeyboardInterrupt):
        engine.step()
    assert drain(engine)["a"][-1].finish_reason == FinishReason.LENGTH


def test_logits_that_are_no_numbers_end_their_requests_drawn_or_greedy() -> None:
    executor = ConstantExecutor(make_limits(), block_size=4, vocab_size=VOCAB)
    executor.row = np.full(VOCAB, np.nan, np.float32)
    engine = make_engine(executor)
    engine.submit(request("drawn", temperature=1.0))
    engine.submit(request("greedy"))
    deltas = {delta.request_id: delta for delta in engine.step()}
    assert deltas["drawn"].finish_reason == FinishReason.ERROR
    assert deltas["drawn"].error == "the engine gave logits that are not finite numbers."
    assert deltas["greedy"].finish_reason == FinishReason.ERROR
