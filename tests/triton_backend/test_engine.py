"""The engine, case by case; `test_workloads.py` has the mixtures."""

from itertools import count

import pytest

from builder.errors import QueueFullError
from builder.targets.scripted.execute import ScriptedExecutor
from tests.triton_backend.engines import (
    PROMPT,
    VOCAB,
    drain,
    failing_engine,
    make_engine,
    request,
    token_ids,
)
from tests.triton_backend.fakes import FakeCompiled, FakeMasks, FakeText
from tests.triton_backend.making import Clock, make_limits
from tests.triton_backend.oracle import Model
from triton_backend.config import EngineConfig
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.engine import fresh_seed
from triton_backend.request import FinishReason, SamplingParams


def test_an_idle_engine_has_no_work_and_no_news() -> None:
    engine = make_engine()
    assert not engine.has_work
    assert engine.step() == []


def test_running_and_waiting_requests_are_counted() -> None:
    engine = failing_engine({}, max_num_seqs=2)
    counts = []
    for name in "abc":
        engine.submit(request(name))
    for _ in range(8):
        counts.append((engine.num_running, engine.num_waiting))
        engine.step()
    assert counts == [(0, 3), *[(2, 1)] * 5, (0, 1), (1, 0)]


def test_a_request_gets_one_token_per_step_and_ends_once() -> None:
    engine = make_engine()
    engine.submit(request())
    deltas = drain(engine)["a"]
    expected = Model(VOCAB, frozenset()).answer(PROMPT, request().params, seed=0, max_known=11)
    assert token_ids(deltas) == expected.token_ids
    assert [delta.num_generated_tokens for delta in deltas] == [1, 2, 3, 4, 5, 6]
    reasons = [delta.finish_reason for delta in deltas]
    assert reasons == [None] * 5 + [FinishReason.LENGTH]
    assert engine.scheduler.cache.num_held == 0


def test_blocks_are_free_as_soon_as_the_last_token_is_told() -> None:
    engine = make_engine()
    engine.submit(request(max_tokens=1))
    (delta,) = engine.step()
    assert delta.finish_reason == FinishReason.LENGTH
    assert engine.scheduler.cache.num_held == 0
    assert not engine.has_work


def test_an_end_id_ends_the_answer_unless_it_is_ignored() -> None:
    engine = make_engine()
    engine.submit(request())
    free = token_ids(drain(engine)["a"])
    engine = make_engine(end_ids=[free[2]])
    engine.submit(request("a"))
    engine.submit(request("b", ignore_eos=True))
    heard = drain(engine)
    first = free.index(free[2])
    assert token_ids(heard["a"]) == free[: first + 1]
    assert heard["a"][-1].stop_reason == free[2]
    assert token_ids(heard["b"]) == free


def test_a_text_stage_gives_text_and_finds_stop_strings() -> None:
    engine = make_engine(text_stage=FakeText())
    engine.submit(request(max_tokens=None, stop=("ab", "e")))
    deltas = drain(engine)["a"]
    assert deltas[-1].stop_reason in {"ab", "e"}
    assert "e" not in "".join(delta.text for delta in deltas)


def test_many_together_answer_as_each_alone() -> None:
    requests = [
        request(f"r{index}", PROMPT[: 1 + index % 5], temperature=1.5, seed=index)
        for index in range(20)
    ]
    together = make_engine()
    for one in requests:
        together.submit(one)
    heard = drain(together)
    for one in requests:
        alone = make_engine()
        alone.submit(one)
        assert token_ids(heard[one.request_id]) == token_ids(drain(alone)[one.request_id])


def test_the_same_seed_gives_the_same_answer_and_another_another() -> None:
    engine = make_engine()
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        engine.submit(request(name, temperature=100, seed=seed))
    heard = drain(engine)
    assert token_ids(heard["a"]) == token_ids(heard["b"]) != token_ids(heard["c"])


def test_without_a_seed_each_request_draws_its_own() -> None:
    drawn = iter([1, 2])
    engine = make_engine(draw_seed=lambda: next(drawn))
    for name, seed in (("a", None), ("b", 7), ("c", None), ("d", 1)):
        engine.submit(request(name, temperature=100, seed=seed))
    heard = drain(engine)
    assert token_ids(heard["a"]) == token_ids(heard["d"]) != token_ids(heard["c"])


class CountingMasks(FakeMasks):
    """Counts the constraints that are compiled."""

    num_compiled = 0

    def compile(self, constraint: Constraint) -> FakeCompiled:
        self.num_compiled += 1
        return super().compile(constraint)


def test_a_full_queue_refuses_before_it_compiles_a_constraint_or_draws_a_seed() -> None:
    masks, seeds = CountingMasks(), count()
    config = EngineConfig(max_waiting=1)
    executor = ScriptedExecutor(make_limits(max_num_seqs=1), block_size=4, vocab_size=VOCAB)
    engine = make_engine(
        executor, config=config, mask_provider=masks, draw_seed=lambda: next(seeds)
    )
    constraint = Constraint(ConstraintKind.CHOICE, "3 0")
    for name in "ab":
        engine.submit(request(name, constraint=constraint))
    with pytest.raises(QueueFullError):
        engine.submit(request("c", constraint=constraint))
    assert (masks.num_compiled, next(seeds)) == (2, 2)


def test_fresh_seeds_differ_and_are_seeds() -> None:
    seeds = {fresh_seed() for _ in range(10)}
    assert len(seeds) == 10
    assert all(SamplingParams(seed=seed) for seed in seeds)


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_cancel_frees_everything_at_once_waiting_or_running(num_steps: int) -> None:
    stage = FakeText()
    engine = make_engine(text_stage=stage)
    engine.submit(request())
    for _ in range(num_steps):
        engine.step()
    (delta,) = engine.cancel("a")
    assert delta.is_last
    assert (delta.finish_reason, delta.num_generated_tokens) == (
        FinishReason.CANCELLED,
        num_steps,
    )
    assert not engine.has_work
    assert not stage.live
    assert engine.scheduler.cache.num_held == 0
    assert engine.step() == []


def test_cancelling_what_is_unknown_or_over_is_no_news() -> None:
    engine = make_engine()
    assert engine.cancel("a") == []
    engine.submit(request(max_tokens=1))
    drain(engine)
    assert engine.cancel("a") == []


def test_cancelling_one_leaves_the_others() -> None:
    engine = make_engine()
    engine.submit(request("a"))
    engine.submit(request("b"))
    engine.step()
    engine.cancel("a")
    heard = drain(engine)
    assert set(heard) == {"b"}
    assert heard["b"][-1].finish_reason == FinishReason.LENGTH


def test_logprobs_come_with_each_token_of_those_who_ask() -> None:
    engine = make_engine()
    engine.submit(request("silent"))
    engine.submit(request("asks", logprobs=3))
    heard = drain(engine)
    assert all(delta.logprobs == () for delta in heard["silent"])
    for delta in heard["asks"]:
        (told,) = delta.logprobs
        assert (told.rank, told.top_ids[0]) == (1, delta.token_ids[0])
        assert told.top_logprobs[0] == told.logprob


def test_logprobs_are_those_before_bans() -> None:
    engine = make_engine()
    engine.submit(request(max_tokens=1))
    (likeliest,) = token_ids(drain(engine)["a"])
    engine.submit(request(logprobs=1, min_tokens=1, max_tokens=1, stop_token_ids=(likeliest,)))
    (delta,) = engine.step()
    (told,) = delta.logprobs
    assert told.top_ids == (likeliest,)
    assert delta.token_ids != told.top_ids
    assert told.rank > 1


@pytest.mark.parametrize("num_candidates", [1, 3, 64])
def test_no_setting_changes_an_answer(num_candidates: int) -> None:
    def answer(config: EngineConfig | None) -> tuple[int, ...]:
        engine = make_engine(config=config)
        engine.submit(request(temperature=2.0, top_p=0.97, seed=5, max_tokens=30))
        return token_ids(drain(engine)["a"])

    config = EngineConfig(num_candidates=num_candidates, watermark=0.5)
    assert answer(config) == answer(None)


def test_an_engine_without_work_says_when_cached_blocks_have_had_their_time() -> None:
    clock = Clock()
    engine = make_engine(clock=clock, config=EngineConfig(cache_ttl_s=10.0))
    assert engine.rest_s is None
    engine.submit(request(prompt=tuple(range(9))))
    assert engine.rest_s == 0
    drain(engine)
    clock.now = 4.0
    assert engine.rest_s == 6.0
    assert engine.step() == []
    assert engine.scheduler.cache.num_cached
    clock.now = 10.0
    assert engine.rest_s == 0
    assert engine.step() == []
    assert (engine.scheduler.cache.num_cached, engine.rest_s) == (0, None)
    assert engine.scheduler.pool.num_used == 0


def test_without_a_time_to_live_an_idle_engine_rests_for_ever() -> None:
    engine = make_engine()
    engine.submit(request(prompt=tuple(range(9))))
    drain(engine)
    assert engine.scheduler.cache.num_cached
    assert engine.rest_s is None
