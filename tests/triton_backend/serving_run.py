"""One workload being served: submits, cancels, erases and steps, and keeps what was heard of each choice.

All that must hold is checked on the way by `watching.Watch`, and at the end against the oracle.
"""

from dataclasses import dataclass, field
from typing import Any

from builder.artifact.step import StepTensors
from builder.errors import QueueFullError
from tests.triton_backend.fakes import BrokenEngineError, FakeMasks, FakeText, WatchedExecutor
from tests.triton_backend.oracle import Logprobs
from tests.triton_backend.watching import Watch
from tests.triton_backend.workload import Workload, draw_workload

Key = tuple[str, int]


@dataclass
class Story:
    """What was heard of one choice of a request."""

    request: Any
    choice: int
    seed: int
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: tuple[Any, ...] = ()
    num_cached_tokens: int | None = None
    last: Any = None

    def hear(self, delta: Any) -> None:
        assert self.last is None, "a delta after the last"
        assert delta.num_prompt_tokens == len(self.request.prompt_token_ids)
        if delta.prompt_logprobs:
            assert not self.token_ids, "prompt logprobs after the first delta"
            assert self.choice == 0, "prompt logprobs of another choice"
            self.prompt_logprobs = delta.prompt_logprobs
        self.token_ids += delta.token_ids
        assert delta.num_generated_tokens == len(self.token_ids)
        self.text += delta.text
        self.logprobs += delta.logprobs
        if delta.token_ids:
            assert self.num_cached_tokens in (None, delta.num_cached_tokens), "other cached tokens"
            self.num_cached_tokens = delta.num_cached_tokens
        if delta.finish_reason is not None:
            self.last = delta
        else:
            assert not delta.is_last, "the last, and not finished"


class Run:
    """One workload in one engine."""

    def __init__(self, program: Any, work: Workload, number: int) -> None:
        self.work = work
        self.stories: dict[Key, Story] = {}
        self.over: set[str] = set()
        """Requests that were said to be over."""
        self.refused = 0
        self.now = 0
        """Steps so far; the engine's clock."""
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
            config=program.EngineConfig(**work.settings),
            clock=lambda: float(self.now),
            mask_provider=FakeMasks(),
        )
        self.watch = Watch(self.engine, work)

    def draw_seed(self) -> int:
        self.next_seed += 1
        return self.next_seed

    def serve(self) -> None:
        """Serve to the end, and compare every answer with the oracle."""
        last = max([*self.work.arrivals, *self.work.cancels])
        while self.now <= last or self.engine.has_work:
            self.submit_and_cancel()
            self.check_progress(last)
            self.step()
            self.now += 1
        if self.work.settings["cache_ttl_s"] is not None:
            self.now += 1000
            assert self.engine.step() == []
            assert not self.engine.scheduler.cache.num_cached, "cached beyond the time to live"
        self.watch.check_idle()
        assert not self.text_stage.live, "answers of the text stage lost"
        for story in self.stories.values():
            self.check_answer(story)
        self.check_counts()

    def submit_and_cancel(self) -> None:
        for request in self.work.arrivals.get(self.now, []):
            self.submit(request)
        for request_id in self.work.cancels.get(self.now, []):
            deltas = self.engine.cancel(request_id)
            ended = {delta.choice for delta in deltas}
            alive = {
                story.choice
                for (name, _), story in self.stories.items()
                if name == request_id and story.last is None
            }
            assert ended == alive, "cancelled or not?"
            assert all(delta.finish_reason == "cancelled" for delta in deltas)
            self.hear(deltas)
        if self.now in self.work.erasures:
            domain = self.work.erasures[self.now]
            self.engine.erase_domain(domain)
            self.watch.erased(domain)
        self.watch.check_blocks()

    def submit(self, request: Any) -> None:
        drawn = self.next_seed + 1
        has_room = self.watch.room_in_queue(request)
        try:
            self.engine.submit(request)
        except QueueFullError:
            assert not has_room, "refused, though the queue has room"
            self.refused += 1
            return
        assert has_room, "taken beyond the bound of the queue"
        given = request.params.seed
        for choice in range(request.params.num_choices):
            seed = drawn if given is None else given
            self.stories[request.request_id, choice] = Story(request, choice, seed)

    def step(self) -> None:
        had_work, num_steps = self.engine.has_work, self.executor.num_steps
        deltas = self.engine.step()
        if self.executor.failure is not None:
            raise self.executor.failure
        executed = self.executor.num_steps - num_steps
        timed_out = [delta for delta in deltas if delta.finish_reason == "timeout"]
        assert executed == had_work or (not executed and timed_out), "not one engine step"
        errors = [delta for delta in deltas if delta.finish_reason == "error"]
        if executed and self.executor.num_steps in self.work.failures:
            self.watch.check_failed(errors)
            assert len(errors) + len(timed_out) == len(deltas), "goes on after a failure"
        elif executed:
            assert not errors, "failed by itself"
            self.watch.check_computed()
        for delta in deltas:
            deadline = self.stories[delta.request_id, delta.choice].request.deadline_s
            late = deadline is not None and self.now > deadline
            assert late == (delta.finish_reason == "timeout"), "late, or ended too early"
        self.hear(deltas)
        for story in self.stories.values():
            deadline = story.request.deadline_s
            assert story.last or deadline is None or deadline > self.now, "lives on, late"
        self.watch.check_blocks()
        self.watch.check_events()

    def watch_step(self, step: StepTensors) -> None:
        """Look at the plan that became `step`."""
        self.watch.check_step(step)
        if self.executor.num_steps in self.work.failures:
            raise BrokenEngineError

    def hear(self, deltas: list[Any]) -> None:
        """Take deltas to their stories; the last of a request's last choice says so, and no other."""
        for delta in deltas:
            self.stories[delta.request_id, delta.choice].hear(delta)
            choices = [s for (name, _), s in self.stories.items() if name == delta.request_id]
            is_over = all(story.last is not None for story in choices)
            assert delta.is_last == is_over, "is_last is wrong"

    def check_progress(self, last: int) -> None:
        """The oldest gets on in every step and never loses what it has: so many steps are enough."""
        most = sum(self.max_known(story.request) for story in self.stories.values())
        assert self.now <= last + 1 + most, "too many steps"

    def check_counts(self) -> None:
        """The engine's own counts are those of the stories."""
        metrics, stories = self.engine.metrics, self.stories.values()
        reasons: dict[str, int] = {}
        for story in stories:
            reasons[story.last.finish_reason] = reasons.get(story.last.finish_reason, 0) + 1
        assert metrics.num_submitted == len(stories)
        assert metrics.num_open == 0
        assert {reason: count for reason, count in metrics.ends.items() if count} == reasons
        assert metrics.refusals.total() == self.refused
        tokens = sum(len(story.token_ids) for story in stories)
        assert metrics.num_generated_tokens == tokens
        assert metrics.num_steps == self.executor.num_steps
        assert metrics.num_computed_tokens == self.watch.num_computed
        assert metrics.num_preemptions == self.watch.num_preempted
        assert metrics.num_accepted_tokens <= metrics.num_drafted_tokens
        assert metrics.num_hit_tokens == self.watch.num_hit
        assert metrics.num_admitted == len(self.watch.effort.admissions)

    def max_known(self, request: Any) -> int:
        """Give the tokens of prompt and answer at which an answer ends."""
        room = (self.work.limits.num_blocks - 1) * self.work.block_size + 1
        params, prompt = request.params, request.prompt_token_ids
        if params.max_tokens is not None:
            return len(prompt) + int(params.max_tokens)
        return min(self.work.limits.max_seq_len, room)

    def check_answer(self, story: Story) -> None:
        assert story.last is not None, "never finished"
        params, prompt = story.request.params, story.request.prompt_token_ids
        answer = self.work.model.answer(
            prompt,
            params,
            seed=story.seed,
            max_known=self.max_known(story.request),
            choice=story.choice,
        )
        token_ids, last = tuple(story.token_ids), story.last
        self.check_logprobs(story, answer.logprobs)
        if last.finish_reason in {"cancelled", "error", "timeout"}:
            assert token_ids == answer.token_ids[: len(token_ids)], "other tokens"
            assert answer.text.startswith(story.text), "other text"
            assert bool(self.work.failures) or last.finish_reason != "error"
            return
        assert token_ids == answer.token_ids, "other tokens"
        assert story.text == answer.text, "other text"
        assert last.finish_reason == answer.finish_reason
        assert last.stop_reason == answer.stop_reason

    def check_logprobs(self, story: Story, expected: tuple[Logprobs, ...]) -> None:
        params, prompt = story.request.params, story.request.prompt_token_ids
        if params.logprobs is None:
            assert not story.logprobs, "logprobs that nobody asked for"
        else:
            assert len(story.logprobs) == len(story.token_ids), "a token without logprobs"
            for given, told in zip(story.logprobs, expected, strict=False):
                check_same(given, told)
        if params.prompt_logprobs is None or story.choice or not story.token_ids:
            assert not story.prompt_logprobs, "prompt logprobs that nobody asked for"
            return
        wanted = self.work.model.prompt_logprobs(prompt, params.prompt_logprobs)
        for given, told in zip(story.prompt_logprobs, wanted, strict=True):
            check_same(given, told)


def check_same(given: Any, told: Logprobs) -> None:
    """Compare logprobs with the oracle's, which are summed up in another order."""
    assert given.rank == told.rank, "another rank"
    assert given.top_ids == told.top_ids, "other likeliest ids"
    pairs = zip(
        (given.logprob, *given.top_logprobs), (told.logprob, *told.top_logprobs), strict=True
    )
    assert all(abs(one - other) < 1e-9 for one, other in pairs), "other logprobs"


def check_workload(program: Any, number: int) -> None:
    """Serve workload `number` with a program and raise AssertionError if anything is wrong."""
    Run(program, draw_workload(program, number), number).serve()
