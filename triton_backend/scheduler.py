"""Decides what a step computes: spends the token budget, hands out blocks, takes them back.

There is no prefill phase and no decode phase: a sequence has pending tokens, and a step computes some
of them. Who runs is in the order of admission; who waits is in the order of a policy, and whoever lost its
blocks goes before all who never ran. The oldest always gets on, so each sequence that fits the pool alone
is finished in the end. Nobody is admitted unless budget is left by all who run, so each running sequence has
at least one token in every step, and only the newest can have more than one pending.
"""

from collections.abc import Callable

from builder.artifact.config import Limits
from builder.errors import QueueFullError, RequestError
from triton_backend.allowance import Allowance
from triton_backend.config import EngineConfig
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.hit import Hit
from triton_backend.kv.pool import BlockPool
from triton_backend.plan import Scheduled, StepPlan
from triton_backend.policies import POLICIES
from triton_backend.policies.policy import View
from triton_backend.policies.shares import Shares
from triton_backend.reasons import WaitReason
from triton_backend.request import Request
from triton_backend.reuse import find_hit
from triton_backend.sequence import Sequence
from triton_backend.waiting import Waiting


class Scheduler:
    """Owns the queue, the running sequences and the cache of blocks."""

    def __init__(
        self,
        limits: Limits,
        cache: BlockCache,
        *,
        config: EngineConfig,
        clock: Callable[[], float],
    ) -> None:
        """Start idle. `clock` gives seconds that never go back; only policies look at it."""
        self.cache = cache
        self._shares = Shares()
        self.waiting = Waiting(
            POLICIES[config.policy], View(self._shares.served, self._count_reusable)
        )
        """Hold no blocks; one after the other is admitted."""
        self.running: list[Sequence] = []
        """Hold blocks; oldest admission first."""
        self.max_running = min(limits.max_num_seqs, limits.max_logit_rows)
        """Sequences that can run together: sooner or later each needs a logit row in the same step."""
        self._limits = limits
        self._config = config
        self._watermark_blocks = max(1, int(config.watermark * limits.num_blocks))
        self._clock = clock
        self._copied: list[int] = []
        """Blocks that the step under way copies from, held until it is done."""

    @property
    def pool(self) -> BlockPool:
        """The blocks, cached ones included."""
        return self.cache.pool

    def check_room(self, request: Request) -> None:
        """Refuse a new request while the queue has no room for all its choices.

        Raises:
            QueueFullError: says how full it may be.
            RequestError: not even an empty queue has room for so many choices.
        """
        count, bound = request.params.num_choices, self._config.max_waiting
        if count > self.max_running + bound:
            raise RequestError(
                f"num_choices {count} is more than can be taken at once: {self.max_running} answers run"
                f" and {bound} wait (max_waiting); ask for fewer."
            )
        free = self.max_running - len(self.running)
        if len(self.waiting) + count - free > bound:
            raise QueueFullError(
                f"the queue is full: {len(self.waiting)} answers wait already and {count} would be added,"
                f" for {free} free places (max_waiting {bound}); try again later."
            )
        most = self._config.max_waiting_tokens
        if most is None or not self.waiting:
            return
        num_tokens = sum(sequence.num_known for sequence in self.waiting)
        if num_tokens + count * len(request.prompt_token_ids) > most:
            raise QueueFullError(
                f"the queue is full: {num_tokens} tokens wait already (max_waiting_tokens {most});"
                " try again later."
            )

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence. It must fit the pool when alone."""
        sequence.arrived_s = self._clock()
        self._shares.enter(sequence.request.tenant)
        self.waiting.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence that is over, wherever it is, and give back its blocks."""
        if sequence.block_table:
            self.running.remove(sequence)
            self._give_back(sequence, 0)
        else:
            self.waiting.remove(sequence)
        self._shares.leave(sequence.request.tenant)

    def plan(self) -> StepPlan:
        """Choose the tokens of the next step and take the blocks they need; `settle` or `discard` follows."""
        self.cache.expire()
        allowance = Allowance(
            self._limits.max_num_tokens, self._limits.max_logit_rows, self._num_chunk_tokens()
        )
        shares: list[Scheduled] = []
        preempted: list[Sequence] = []
        index = 0
        while index < len(self.running):
            if self._cover(self.running[index], preempted):
                shares.append(allowance.share(self.running[index]))
            index += 1

        num_running = len(self.running)
        copies: list[tuple[int, int]] = []
        # Whoever just lost its blocks goes first, and there is no room for it.
        waits_for = WaitReason.BLOCKS if preempted else self._admit(allowance, shares, copies)
        self._draft(allowance, shares)
        return StepPlan(
            scheduled=tuple(shares),
            preempted=tuple(preempted),
            admitted=tuple(self.running[num_running:]),
            block_copies=tuple(copies),
            waits_for=waits_for,
        )

    def settle(self, plan: StepPlan) -> None:
        """Account for a step that was committed: publish, charge tenants, and give back what drafts took."""
        self._release_copied()
        size = self.pool.block_size
        for sequence, *_, drafted in plan.scheduled:
            num_computed = sequence.num_computed
            if len(sequence.chain.path) < num_computed // size and sequence.request.store:
                self.cache.publish(
                    sequence.chain, sequence.token_ids, sequence.block_table, num_computed
                )
            if num_computed > sequence.num_charged:
                self._shares.charge(sequence.request.tenant, num_computed - sequence.num_charged)
                sequence.num_charged = num_computed
            if drafted:
                self._give_back(sequence, self.pool.blocks_for(sequence.num_known))

    def discard(self) -> list[Sequence]:
        """Forget all KV after a step that failed: what is in the blocks is in doubt.

        Gives those who ran, oldest first; they wait again.
        """
        ran = list(self.running)
        while self.running:
            self._preempt()
        self._release_copied()
        self.cache.clear()
        return ran

    def _num_chunk_tokens(self) -> int:
        """Count the tokens of prompts that a step may have: fewer if somebody waits for its next token."""
        if any(each.num_generated and each.num_pending == 1 for each in self.running):
            return self._config.max_chunk_tokens or self._limits.max_num_tokens
        return self._limits.max_num_tokens

    def _cover(self, sequence: Sequence, preempted: list[Sequence]) -> bool:
        """Give a running sequence blocks for all known tokens; say no if it lost its own instead.

        The newest sequence pays. It is not scheduled yet: those scheduled are older than `sequence`.
        """
        missing = self.pool.blocks_for(sequence.num_known) - len(sequence.block_table)
        if missing <= 0:
            return True
        while missing > self.cache.num_available:
            preempted.append(self._preempt())
            if preempted[-1] is sequence:
                return False
        sequence.block_table.extend(self.cache.allocate(missing))
        return True

    def _preempt(self) -> Sequence:
        """Take the blocks of the newest running sequence, and let it wait again."""
        newest = self.running.pop()
        self._give_back(newest, 0)
        newest.num_computed = 0
        self.waiting.put_back(newest)
        return newest

    def _admit(
        self, allowance: Allowance, shares: list[Scheduled], copies: list[tuple[int, int]]
    ) -> WaitReason | None:
        """Let run whom there is room for, one after the other; say what the next one waits for."""
        while self.waiting:
            if len(self.running) == self.max_running:
                return WaitReason.SLOTS
            if allowance.is_spent or _is_cut(shares):
                return WaitReason.BUDGET
            sequence = self.waiting.next()
            found = find_hit(self.cache, sequence)
            if found is None:
                return WaitReason.LEADER
            hit = self._fitting(found, sequence.num_known)
            if hit is None:
                return WaitReason.BLOCKS
            if sequence.num_known - hit.num_reused > 1 and not allowance.num_prompt_tokens:
                return WaitReason.BUDGET
            self._start(sequence, hit, copies)
            shares.append(allowance.share(sequence))
        return None

    def _fitting(self, hit: Hit, num_known: int) -> Hit | None:
        """Give the hit, or what there is room for of it; None if a sequence has to wait for blocks."""
        spare = self._watermark_blocks if self.running else 0
        room = self.cache.num_available - spare
        # A block that is only copied from can be the one too many.
        options = (hit, hit.whole())
        return next((o for o in options if self.cache.num_needed(o, num_known) <= room), None)

    def _start(self, sequence: Sequence, hit: Hit, copies: list[tuple[int, int]]) -> None:
        """Move a waiting sequence to the running ones, with blocks for all known tokens."""
        self.waiting.remove(sequence)
        self.cache.take(hit)
        num_blocks = self.pool.blocks_for(sequence.num_known)
        blocks = self.cache.allocate(num_blocks - len(hit.blocks))
        if hit.partial_block is not None:
            copies.append((hit.partial_block, blocks[0]))
            self._copied.append(hit.partial_block)
        sequence.block_table.extend((*hit.blocks, *blocks))
        sequence.num_computed = hit.num_reused
        if not sequence.num_admissions:
            sequence.num_cached = sequence.num_charged = hit.num_reused
        sequence.num_admissions += 1
        self.running.append(sequence)

    def _draft(self, allowance: Allowance, shares: list[Scheduled]) -> None:
        """Add drafts to shares, oldest first, out of what nobody else needs."""
        for place, share in enumerate(shares):
            sequence = share.sequence
            if sequence.drafter is None or share.num_tokens < sequence.num_pending:
                continue
            most = min(
                self._config.max_draft_tokens,
                allowance.num_tokens,
                allowance.num_rows,
                sequence.max_known - sequence.num_known - 1,
                self._num_spare_slots(sequence),
            )
            drafted = sequence.drafter.propose(sequence.token_ids, most)
            if drafted:
                shares[place] = allowance.extend(share, drafted)
                num_blocks = self.pool.blocks_for(sequence.num_known + len(drafted))
                missing = num_blocks - len(sequence.block_table)
                sequence.block_table.extend(self.cache.allocate(missing))

    def _num_spare_slots(self, sequence: Sequence) -> int:
        """Count the slots for tokens after the known ones: in the last block, and in free blocks not set aside.

        Idle blocks are somebody's prefix: no guess may push one out.
        """
        spare = min(self.pool.num_free, max(0, self.cache.num_available - self._watermark_blocks))
        return (len(sequence.block_table) + spare) * self.pool.block_size - sequence.num_known

    def _give_back(self, sequence: Sequence, num_kept: int) -> None:
        """Release all blocks of a sequence but the first."""
        self.cache.release(sequence.block_table[num_kept:])
        del sequence.block_table[num_kept:]

    def _release_copied(self) -> None:
        self.cache.release(self._copied)
        self._copied = []

    def _count_reusable(self, sequence: Sequence) -> int:
        """Count the tokens of a waiting sequence that are cached."""
        return self.cache.match(sequence.chain, sequence.token_ids, sequence.first_row)


def _is_cut(shares: list[Scheduled]) -> bool:
    """Whether the newest share leaves tokens pending; then it gets the whole of the next step's rest, too."""
    return bool(shares) and shares[-1].num_tokens < shares[-1].sequence.num_pending
