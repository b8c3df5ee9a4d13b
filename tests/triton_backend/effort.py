"""What a plan must do, and what it must not: nobody left out, nobody served out of order, nothing taken without need.

It works on what was there before the plan and on the plan itself, and shares no code with the scheduler.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.triton_backend.workload import Workload

STEADY_KEYS = {
    "fcfs": lambda _: 0,
    "priority": lambda sequence: sequence.request.priority,
    "srpt": lambda sequence: sequence.num_prompt + 100 * sequence.arrived_s,
}
"""Keys of the policies under which those who wait never change places."""


def is_lookup(known: list[int], drafted: list[int]) -> bool:
    """Whether a draft is what followed the last two known tokens where they stood before."""
    places = range(len(known) - 2)
    return any(
        known[place : place + 2] == known[-2:]
        and known[place + 2 : place + 2 + len(drafted)] == drafted
        for place in places
    )


@dataclass
class Before:
    """What was there before a plan."""

    tables: dict[Any, list[int]]
    """Blocks of each running sequence, oldest first."""
    num_available: int
    served: dict[Any, int] = field(default_factory=dict)
    """Tokens charged to the tenant of each sequence at the plan before."""


@dataclass
class Effort:
    """Checks one plan after the other."""

    scheduler: Any
    work: Workload
    arrivals: dict[Any, int] = field(default_factory=dict)
    """Every sequence that was ever seen to wait or run, numbered as they came."""
    admissions: dict[Any, int] = field(default_factory=dict)
    """Every sequence that ever ran, numbered by first admission."""
    before: Before = field(default_factory=lambda: Before({}, 0))

    def look(self) -> None:
        """Take note of what is there before a plan."""
        scheduler = self.scheduler
        for sequence in scheduler.waiting:
            self.arrivals.setdefault(sequence, len(self.arrivals))
        tables = {sequence: list(sequence.block_table) for sequence in scheduler.running}
        available = scheduler.cache.num_available
        self.before = Before(tables, available, self.before.served)

    def check(self, plan: Any) -> None:
        """Check a plan that was made since."""
        for sequence in plan.admitted:
            self.admissions.setdefault(sequence, len(self.admissions))
        assert [item.sequence for item in plan.scheduled] == self.scheduler.running
        assert bool(self.scheduler.waiting) == (plan.waits_for is not None), "waits for nothing"
        self.check_shares(plan)
        self.check_order(plan)
        self.check_fairness(plan)
        self.check_drafts(plan)
        if plan.preempted:
            assert not plan.admitted, "preempts and admits in one step"
            self.check_need(plan)
        else:
            self.check_admission(plan)

    def check_shares(self, plan: Any) -> None:
        """Each has a token; all but the newest have nothing pending afterwards; rows are where they must be."""
        limits = self.work.limits
        tokens = limits.max_num_tokens - sum(item.num_tokens for item in plan.scheduled)
        rows = limits.max_logit_rows - sum(item.num_rows for item in plan.scheduled)
        for item in plan.scheduled:
            sequence, drafted = item.sequence, len(item.drafted)
            assert item.num_tokens - drafted >= 1, "a share without a token"
            is_cut = item.num_tokens - drafted < sequence.num_pending
            end = sequence.num_computed + item.num_tokens
            asks = sequence.request.params.prompt_logprobs is not None and sequence.choice == 0
            if asks and len(sequence.prompt_logprobs) < sequence.num_prompt - 1:
                first_row = len(sequence.prompt_logprobs)
            else:
                first_row = sequence.num_known - 1
            assert item.num_rows == max(0, end - max(first_row, sequence.num_computed)), "rows"
            assert not (is_cut and drafted), "drafts after tokens that are pending"
            if not is_cut:
                continue
            assert item is plan.scheduled[-1], "an older one is cut"
            spent = not tokens or not self.num_chunk_tokens(plan)
            assert spent or (asks and not rows), "cut without need"

    def num_chunk_tokens(self, plan: Any) -> int:
        """Count the tokens of prompts that the step had left; below 0, it has too many."""
        bound = self.work.settings["max_chunk_tokens"]
        generating = any(
            sequence.num_generated and sequence.num_pending == 1 for sequence in self.before.tables
        )
        if bound is None or not generating:
            return self.work.limits.max_num_tokens
        chunks = [item for item in plan.scheduled if item.sequence.num_pending > 1]
        left = int(bound) - sum(item.num_tokens - len(item.drafted) for item in chunks)
        assert left >= 0, "keeps those who wait for a token longer than the bound"
        return left

    def check_fairness(self, plan: Any) -> None:
        """Under `fair`, nobody new is admitted before one whose tenant was served less; idleness is no credit."""
        served = dict(self.scheduler._shares.served)
        alive = [*self.scheduler.running, *self.scheduler.waiting]
        # With nobody left the counters begin anew.
        has_stayed = any(each in self.before.served for each in alive)
        least = min(self.before.served.values()) if has_stayed else 0
        assert all(served[each.request.tenant] >= least for each in alive), "a tenant has credit"
        self.before.served = {each: served[each.request.tenant] for each in alive}
        new = [sequence for sequence in plan.admitted if sequence.num_admissions == 1]
        behind = [each for each in self.scheduler.waiting if each not in self.admissions]
        if self.work.settings["policy"] == "fair" and new and behind:
            first = min(served[sequence.request.tenant] for sequence in behind)
            assert served[new[-1].request.tenant] <= first, "out of the order of fair shares"

    def check_order(self, plan: Any) -> None:
        """Who ran before goes first, in the order of first admission; the others by the policy."""
        waiting = list(self.scheduler.waiting)
        lost = [sequence for sequence in waiting if sequence in self.admissions]
        ran = [*self.scheduler.running, *lost]
        assert ran == sorted(ran, key=self.admissions.__getitem__), "out of the order of admission"
        new = [sequence for sequence in plan.admitted if sequence.num_admissions == 1]
        assert not (new and lost), "overtaken by one that never ran"
        key = STEADY_KEYS.get(self.work.settings["policy"])
        behind = [sequence for sequence in waiting if sequence not in self.admissions]
        if key is None or not new or not behind:
            return
        first, last = min(self.place(key, each) for each in behind), self.place(key, new[-1])
        assert last < first, "out of the order of the policy"

    def place(self, key: Any, sequence: Any) -> tuple[Any, int]:
        return key(sequence), self.arrivals[sequence]

    def check_drafts(self, plan: Any) -> None:
        for item in plan.scheduled:
            if not item.drafted:
                continue
            params, settings = item.sequence.request.params, self.work.settings
            asked = settings["speculation"] if params.speculation is None else params.speculation
            assert asked, "drafts that nobody asked for"
            assert params.constraint is None, "drafts for a constrained answer"
            assert len(item.drafted) <= settings["max_draft_tokens"]
            room = item.sequence.max_known - item.sequence.num_known
            assert len(item.drafted) < room, "drafts beyond the answer"
            assert is_lookup(list(item.sequence.token_ids), list(item.drafted)), (
                "drafted from nowhere"
            )

    def check_need(self, plan: Any) -> None:
        """Without the last that was preempted, blocks would have been short."""
        tables = self.before.tables
        holders = Counter(block for table in tables.values() for block in table)
        *others, last = plan.preempted
        freed = 0
        for sequence in others:
            for block in tables[sequence]:
                holders[block] -= 1
                freed += not holders[block]
        # It may have preempted itself, in need of one more block.
        needy = [sequence for sequence in tables if sequence not in others]
        needed = sum(self.num_missing(sequence) for sequence in needy)
        assert self.before.num_available + freed < needed, "preempted without need"
        assert last is needy[-1], "not the newest"

    def num_missing(self, sequence: Any) -> int:
        """Count the blocks that a running sequence needed before the plan."""
        return self.num_blocks(sequence) - len(self.before.tables[sequence])

    def num_blocks(self, sequence: Any) -> int:
        return -(-sequence.num_known // self.work.block_size)

    def check_admission(self, plan: Any) -> None:
        """Nobody is admitted below the watermark, and nobody waits for what is there."""
        scheduler, limits = self.scheduler, self.work.limits
        available = scheduler.cache.num_available
        spare = max(1, int(self.work.settings["watermark"] * limits.num_blocks))
        if plan.admitted and len(scheduler.running) > 1:
            assert available >= spare, "admitted below the watermark"
        is_full = len(scheduler.running) == self.max_running
        if scheduler.waiting:
            assert (plan.waits_for == "slots") == is_full, "waits for something else"
        if not scheduler.waiting or is_full:
            return
        tokens = limits.max_num_tokens - sum(item.num_tokens for item in plan.scheduled)
        rows = limits.max_logit_rows - sum(item.num_rows for item in plan.scheduled)
        newest = plan.scheduled[-1]
        is_cut = newest.num_tokens - len(newest.drafted) < newest.sequence.num_pending
        if not tokens or not rows or is_cut or not self.num_chunk_tokens(plan):
            return
        head = scheduler.waiting.next()
        computing = [s for s in head.siblings if s in scheduler.running and s is not head]
        if any(sequence.num_computed < sequence.num_prompt for sequence in computing):
            return
        kept = spare if scheduler.running else 0
        assert self.num_blocks(head) + kept > available, "could have admitted"

    @property
    def max_running(self) -> int:
        """Sequences that can run together."""
        return min(self.work.limits.max_num_seqs, self.work.limits.max_logit_rows)
