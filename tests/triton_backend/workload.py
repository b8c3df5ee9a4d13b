"""Random workloads over the scripted engine, and all that must hold while they run.

`check_workload(program, number)` is one property test. It takes the program as an argument, so that the
seeded bugs can hand in a broken one; here nothing is imported from it.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from builder.artifact.config import Limits
from builder.artifact.step import StepTensors
from tests.triton_backend.fakes import BrokenEngineError, FakeText, WatchedExecutor
from tests.triton_backend.oracle import Model

MAX_STEPS = 5_000


@dataclass(frozen=True)
class Workload:
    """What is served, on what, and what befalls it."""

    limits: Limits
    block_size: int
    model: Model
    watermark: float
    num_candidates: int
    arrivals: dict[int, list[Any]]
    """Requests by the step before which they are submitted."""
    cancels: dict[int, list[str]]
    failures: frozenset[int]
    """Steps in which the executor fails."""


def draw_workload(program: Any, number: int) -> Workload:
    """Draw workload `number`: always the same."""
    rng = random.Random(number)  # noqa: S311
    is_tight = rng.random() < 0.6
    block_size = rng.choice([1, 2, 3]) if is_tight else rng.choice([1, 2, 3, 4, 8])
    num_blocks = rng.randint(8, 14) if is_tight else rng.choice([8, 12, 16, 24, 40, 80, 200])
    limits = Limits(
        max_seq_len=min(rng.randint(8, 48), (num_blocks - 1) * block_size + rng.randint(-2, 4)),
        max_num_seqs=rng.randint(1, 8),
        max_num_tokens=rng.choice([1, 2, 3, 5, 8, 16, 32]),
        max_logit_rows=rng.choice([1, 2, 8, 8, 8]),
        num_blocks=num_blocks,
    )
    vocab_size = rng.choice([5, 70, 100])
    end_ids = frozenset(rng.sample(range(vocab_size), rng.randint(0, 2)))
    arrivals: dict[int, list[Any]] = {}
    cancels: dict[int, list[str]] = {}
    for index in range(rng.randint(1, 12)):
        step = rng.choice([0, 0, rng.randint(0, 20)])
        request = draw_request(program, rng, f"r{index}", limits, (block_size, vocab_size))
        arrivals.setdefault(step, []).append(request)
        if rng.random() < 0.15:
            cancels.setdefault(step + rng.randint(0, 12), []).append(request.request_id)
    return Workload(
        limits=limits,
        block_size=block_size,
        model=Model(vocab_size, end_ids, num_groups=rng.choice([1, 1, 2])),
        watermark=rng.choice([0.01, 0.25]),
        num_candidates=rng.choice([1, 4, 64]),
        arrivals=arrivals,
        cancels=cancels,
        failures=frozenset([rng.randint(1, 15)] if rng.random() < 0.15 else []),
    )


def draw_request(
    program: Any, rng: random.Random, request_id: str, limits: Limits, sizes: tuple[int, int]
) -> Any:
    """Draw a request that fits; `sizes` are those of a block and of the vocabulary."""
    block_size, vocab_size = sizes
    room = min(limits.max_seq_len, (limits.num_blocks - 1) * block_size + 1)
    num_prompt = rng.randint(1, room - 1)
    left = room - num_prompt
    max_tokens = rng.choice([None, rng.randint(1, left)])
    has_stop = rng.random() < 0.3
    least = 0 if has_stop or rng.random() < 0.5 else rng.randint(0, max_tokens or left)
    params = program.SamplingParams(
        temperature=rng.choice([0, 0, 0.5, 1.0, 3.0, 100.0]),
        top_k=rng.choice([0, 0, 1, 2, 3, 6, 69, 99, 1000]),
        top_p=rng.choice([1.0, 1.0, 0.999, 0.9, 0.43, 0.07]),
        seed=rng.choice([None, 0, rng.randint(-(2**63), 2**64 - 1)]),
        max_tokens=max_tokens,
        min_tokens=least,
        stop_token_ids=tuple(rng.sample(range(vocab_size), rng.randint(0, 2))),
        stop=tuple(rng.sample(["ab", "c", "ddd", "bca"], rng.randint(1, 3))) if has_stop else (),
        ignore_eos=rng.random() < 0.2,
    )
    prompt = tuple(rng.randrange(vocab_size) for _ in range(num_prompt))
    return program.Request(request_id, prompt, params)


@dataclass
class Story:
    """What was heard of one request."""

    request: Any
    seed: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    last: Any = None

    def hear(self, delta: Any) -> None:
        assert self.last is None, "a delta after the last"
        assert delta.num_prompt_tokens == len(self.request.prompt_token_ids)
        self.token_ids += delta.token_ids
        assert delta.num_generated_tokens == len(self.token_ids)
        self.text += delta.text
        if delta.finish_reason is not None:
            self.last = delta


class Run:
    """One workload being served, watched from outside and between plan and execution."""

    def __init__(self, program: Any, work: Workload, number: int) -> None:
        self.work = work
        self.stories: dict[str, Story] = {}
        self.text_stage = FakeText()
        self.executor = WatchedExecutor(
            work.limits,
            block_size=work.block_size,
            vocab_size=work.model.vocab_size,
            num_groups=work.model.num_groups,
        )
        self.executor.watch = self.watch_step
        self.next_seed = 1000 * number
        self.engine = program.Engine(
            self.executor,
            end_token_ids=work.model.end_token_ids,
            text_stage=self.text_stage,
            draw_seed=self.draw_seed,
            config=program.EngineConfig(
                watermark=work.watermark, num_candidates=work.num_candidates
            ),
        )
        self.tables: dict[str, int] = {}
        """Blocks that each running request held before the step."""
        self.num_free = 0
        """Blocks that were free before the step."""
        self.planned: dict[Any, int] = {}
        """Sequences that ran in the last step, and their tokens computed before it."""
        self.num_tokens = 0
        """Tokens of the last step."""

    def draw_seed(self) -> int:
        self.next_seed += 1
        return self.next_seed

    def serve(self) -> None:
        """Serve to the end, and compare every answer with the oracle."""
        step = 0
        last = max([*self.work.arrivals, *self.work.cancels])
        while step <= last or self.engine.has_work:
            assert step < MAX_STEPS, "the engine does not come to an end"
            self.submit_and_cancel(step)
            self.step()
            step += 1
        assert self.engine.scheduler.pool.num_used == 0, "blocks lost"
        assert not self.text_stage.live, "answers of the text stage lost"
        for story in self.stories.values():
            self.check_answer(story)

    def submit_and_cancel(self, step: int) -> None:
        for request in self.work.arrivals.get(step, []):
            drawn = self.next_seed + 1
            self.engine.submit(request)
            given = request.params.seed
            self.stories[request.request_id] = Story(request, drawn if given is None else given)
        for request_id in self.work.cancels.get(step, []):
            story = self.stories[request_id]
            delta = self.engine.cancel(request_id)
            assert (delta is None) == (story.last is not None), "cancelled or not?"
            if delta is not None:
                assert delta.finish_reason == "cancelled"
                story.hear(delta)
        self.check_blocks()

    def step(self) -> None:
        scheduler = self.engine.scheduler
        self.tables = {s.request.request_id: len(s.block_table) for s in scheduler.running}
        self.num_free = scheduler.pool.num_free
        had_work, num_steps = self.engine.has_work, self.executor.num_steps
        deltas = self.engine.step()
        if self.executor.failure is not None:
            raise self.executor.failure
        assert self.executor.num_steps - num_steps == had_work, "not one engine step"
        if had_work and self.executor.num_steps in self.work.failures:
            assert not scheduler.running, "runs on after a failure"
            assert {delta.finish_reason for delta in deltas} == {"error"}
            assert [delta.request_id for delta in deltas] == [
                sequence.request.request_id for sequence in self.planned
            ]
        elif had_work:
            assert not [delta.error for delta in deltas if delta.error], "failed by itself"
            computed = sum(s.num_computed - before for s, before in self.planned.items())
            assert computed == self.num_tokens, "computed tokens miscounted"
        for delta in deltas:
            self.stories[delta.request_id].hear(delta)
        self.check_blocks()

    def watch_step(self, step: StepTensors) -> None:
        """Look at the plan that became `step`."""
        self.planned = {s: s.num_computed for s in self.engine.scheduler.running}
        self.num_tokens = step.num_tokens
        self.check_blocks()
        self.check_order()
        self.check_effort(step)
        if self.executor.num_steps in self.work.failures:
            raise BrokenEngineError

    def check_blocks(self) -> None:
        """Every block is free or in one table; nobody holds more than the known tokens need."""
        scheduler, size = self.engine.scheduler, self.work.block_size
        held = [block for s in scheduler.running for block in s.block_table]
        assert len(held) == len(set(held)), "a block in two places"
        assert all(0 < block < self.work.limits.num_blocks for block in held)
        assert scheduler.pool.num_free == self.work.limits.num_blocks - 1 - len(held)
        for sequence in scheduler.running:
            assert len(sequence.block_table) <= self.blocks_for(sequence), "holds too many blocks"
            assert sequence.num_computed <= len(sequence.block_table) * size
        for sequence in scheduler.waiting:
            assert not sequence.block_table, "waits with blocks"
            assert not sequence.num_computed, "waits with computed tokens"
        scheduler.pool.check_integrity(s.block_table for s in scheduler.running)

    def check_order(self) -> None:
        """Who runs arrived before who waits."""
        scheduler = self.engine.scheduler
        ids = [s.request.request_id for s in [*scheduler.running, *scheduler.waiting]]
        arrived = [name for name, story in self.stories.items() if story.last is None]
        assert ids == arrived, "out of the order of arrival"

    def check_effort(self, step: StepTensors) -> None:
        """A step leaves nothing undone that it could do, and takes no blocks without need."""
        scheduler, limits = self.engine.scheduler, self.work.limits
        tokens = limits.max_num_tokens - step.num_tokens
        assert step.num_seqs == len(scheduler.running), "a sequence left out"
        if tokens:
            assert len(step.logit_rows) == step.num_seqs, "a sequence without its row"
        lost = [s for s in scheduler.waiting if s.request.request_id in self.tables]
        newcomers = [s for s in scheduler.running if s.request.request_id not in self.tables]
        if lost:
            self.check_need(lost)
            assert not newcomers, "preempts and admits in one step"
            return
        free = scheduler.pool.num_free
        spare = max(1, int(self.work.watermark * limits.num_blocks))
        if newcomers and len(scheduler.running) > 1:
            assert free >= spare, "admitted below the watermark"
        has_place = step.num_seqs < min(limits.max_num_seqs, limits.max_logit_rows)
        if tokens and scheduler.waiting and has_place:
            needed = self.blocks_for(scheduler.waiting[0])
            assert needed + spare > free, "could have admitted"

    def check_need(self, lost: list[Any]) -> None:
        """Without the last that was preempted, the oldest of them, blocks would have been short."""
        tables = {s.request.request_id: len(s.block_table) for s in self.engine.scheduler.running}
        taken = sum(tables.values()) - sum(self.tables[name] for name in tables)
        # It may have preempted itself, in need of one more block.
        own = self.blocks_for(lost[0]) - self.tables[lost[0].request.request_id]
        freed = sum(self.tables[s.request.request_id] for s in lost[1:])
        assert self.num_free + freed < taken + own, "preempted without need"

    def blocks_for(self, sequence: Any) -> int:
        return -(-sequence.num_known // self.work.block_size)

    def check_answer(self, story: Story) -> None:
        assert story.last is not None, "never finished"
        room = (self.work.limits.num_blocks - 1) * self.work.block_size + 1
        params, prompt = story.request.params, story.request.prompt_token_ids
        max_known = min(self.work.limits.max_seq_len, room)
        if params.max_tokens is not None:
            max_known = len(prompt) + params.max_tokens
        answer = self.work.model.answer(prompt, params, seed=story.seed, max_known=max_known)
        token_ids, last = tuple(story.token_ids), story.last
        if last.finish_reason in {"cancelled", "error"}:
            assert token_ids == answer.token_ids[: len(token_ids)], "other tokens"
            assert answer.text.startswith(story.text), "other text"
            assert bool(self.work.failures) or last.finish_reason == "cancelled"
            return
        assert token_ids == answer.token_ids, "other tokens"
        assert story.text == answer.text, "other text"
        assert last.finish_reason == answer.finish_reason
        assert last.stop_reason == answer.stop_reason


def check_workload(program: Any, number: int) -> None:
    """Serve workload `number` with a program and raise AssertionError if anything is wrong."""
    Run(program, draw_workload(program, number), number).serve()
