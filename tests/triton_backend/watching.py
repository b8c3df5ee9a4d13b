"""What must hold of blocks, order and effort while a workload is served: before, in and after every step."""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from builder.artifact.step import StepTensors
from tests.triton_backend.effort import Effort
from tests.triton_backend.ownership import Ownership
from tests.triton_backend.remembered import Remembered
from tests.triton_backend.workload import Workload

NO_DRAFTS: Mapping[Any, int] = MappingProxyType({})


class Watch:
    """Watches one engine from outside, and its plans between planning and execution."""

    def __init__(self, engine: Any, work: Workload) -> None:
        self.engine = engine
        self.work = work
        self.ownership = Ownership(work.block_size, work.common)
        self.events = engine.events.subscribe()
        self.stored: dict[bytes, float] = {}
        """Keys of cached blocks, as the events tell, and when they were stored."""
        self.plan: Any = None
        """The last plan."""
        self.num_computed = 0
        """Tokens of all steps that succeeded."""
        self.num_preempted = 0
        self.num_hit = 0
        """Tokens reused at first admissions."""
        self.effort = Effort(engine.scheduler, work)
        self.remembered = Remembered(work)
        self._plan = engine.scheduler.plan
        engine.scheduler.plan = self.plan_watched

    def plan_watched(self) -> Any:
        self.effort.look()
        self.check_events()
        self.plan = self._plan()
        self.effort.check(self.plan)
        self.check_removed(self.check_events())
        for sequence in self.plan.admitted:
            if sequence.num_admissions == 1:
                self.num_hit += sequence.num_cached
                self.remembered.admitted(sequence)
        self.num_preempted += len(self.plan.preempted)
        return self.plan

    def check_removed(self, stored: list[float]) -> None:
        """What a plan removed was in the way of somebody, or not used for the time to live."""
        if not self.engine.scheduler.pool.num_free or self.plan.preempted:
            return
        ttl_s = self.work.settings["cache_ttl_s"]
        assert not stored or ttl_s is not None, "evicts more than it needs"
        # What is stored is a use of all that it builds on, so nothing new goes with something old.
        assert not stored or self.engine._clock() - max(stored) >= ttl_s, "forgets too soon"

    def room_in_queue(self, request: Any) -> bool:
        """Say whether the queue has room for a request."""
        scheduler, settings = self.engine.scheduler, self.work.settings
        waiting = list(scheduler.waiting)
        places = self.effort.max_running - len(scheduler.running)
        count = request.params.num_choices
        if len(waiting) + count > places + settings["max_waiting"]:
            return False
        bound = settings["max_waiting_tokens"]
        tokens = sum(sequence.num_known for sequence in waiting)
        tokens += count * len(request.prompt_token_ids)
        return bound is None or not waiting or tokens <= bound

    def erased(self, domain: bytes) -> None:
        """Take note that the cached blocks of a domain are erased."""
        scheduler = self.engine.scheduler
        sequences = [*scheduler.running, *scheduler.waiting]
        alive = {s.request.request_id for s in sequences if s.request.domain == domain}
        self.ownership.erase(domain, alive)
        self.remembered.closed |= alive

    def check_step(self, step: StepTensors) -> None:
        """Look at a plan, and at the step that was made of it."""
        sequences = [item.sequence for item in self.plan.scheduled]
        assert step.num_seqs == len(sequences), "a sequence left out"
        self.check_blocks({item.sequence: len(item.drafted) for item in self.plan.scheduled})
        self.ownership.watch(step, sequences)

    def check_computed(self) -> None:
        """Count the tokens of a step that succeeded, and remember what can be found again."""
        for item in self.plan.scheduled:
            self.remembered.computed(item.sequence)
        self.num_computed += sum(item.num_tokens for item in self.plan.scheduled)

    def check_failed(self, errors: list[Any]) -> None:
        """A failed step ends all that ran in it, and leaves nothing cached."""
        failed = [
            (item.sequence.request.request_id, item.sequence.choice) for item in self.plan.scheduled
        ]
        self.num_computed += sum(item.num_tokens for item in self.plan.scheduled)
        assert [(delta.request_id, delta.choice) for delta in errors] == failed
        scheduler = self.engine.scheduler
        assert not scheduler.running, "runs on after a failure"
        assert not scheduler.cache.num_cached, "cached blocks after a failure"

    def check_blocks(self, drafts: Mapping[Any, int] = NO_DRAFTS) -> None:
        """Every block is where it should be; nobody holds more than the known and drafted tokens need."""
        scheduler, size = self.engine.scheduler, self.work.block_size
        for sequence in scheduler.running:
            num_tokens = sequence.num_known + drafts.get(sequence, 0)
            assert len(sequence.block_table) <= -(-num_tokens // size), "holds too many blocks"
            assert sequence.num_computed <= len(sequence.block_table) * size
            assert sequence.num_computed < sequence.num_known, "nothing pending"
            assert all(0 < block < self.work.limits.num_blocks for block in sequence.block_table)
        for sequence in scheduler.waiting:
            assert not sequence.block_table, "waits with blocks"
            assert not sequence.num_computed, "waits with computed tokens"
        self.check_sharing()

    def check_sharing(self) -> None:
        """Blocks in several tables hold the same computed tokens, and the cache accounts for all blocks."""
        scheduler, size = self.engine.scheduler, self.work.block_size
        tables = [sequence.block_table for sequence in scheduler.running]
        holders = Counter(block for table in tables for block in table)
        seen: dict[int, tuple[Any, int]] = {}
        for sequence in scheduler.running:
            for place, block in enumerate(sequence.block_table):
                if holders[block] == 1:
                    continue
                other, at = seen.setdefault(block, (sequence, place))
                assert at == place, "a shared block at two places"
                end = (place + 1) * size
                assert sequence.token_ids[:end] == other.token_ids[:end], "shared by other tokens"
                assert min(sequence.num_computed, other.num_computed) >= end, "shared, not computed"
        # The step under way holds the blocks that it copies from.
        scheduler.cache.check_integrity([*tables, scheduler._copied])

    def check_events(self) -> list[float]:
        """Who follows the events knows what is cached, and every block's parent came before it.

        Gives when the blocks were stored that were removed since the last look.
        """
        removed: list[float] = []
        events, num_missed = self.events.drain()
        assert not num_missed
        for _, event in events:
            kind = type(event).__name__
            if kind == "Stored":
                assert event.parent is None or event.parent in self.stored, "an orphan"
                assert self.stored.keys().isdisjoint(event.keys), "stored twice"
                assert len(event.token_ids) == len(event.keys) * event.block_size
                self.stored |= dict.fromkeys(event.keys, self.engine._clock())
            elif kind == "Removed":
                self.remembered.forgets = True
                assert self.stored.keys() >= set(event.keys), "removed, and was not there"
                removed += [self.stored.pop(key) for key in event.keys]
            else:
                self.remembered.forgets = True
                self.stored.clear()
        cached = {key for run in self.engine.scheduler.cache.snapshot() for key in run.keys}
        assert self.stored.keys() == cached, "the events tell something else"
        assert len(cached) == self.engine.scheduler.cache.num_cached
        return removed

    def check_idle(self) -> None:
        """Nothing runs: nothing is held, and what is cached can all be had."""
        cache, usable = self.engine.scheduler.cache, self.work.limits.num_blocks - 1
        cache.check_integrity([])
        assert cache.num_available == usable, "blocks lost"
        cache.clear()
        assert cache.num_cached == 0, "cached after clear"
        assert cache.num_available == usable, "blocks lost by clear"
