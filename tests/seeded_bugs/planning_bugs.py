"""Seeded bugs in what a step computes and where: scheduler, pool, packer.

They are permanent. When code changes so that a patch no longer fits, renew it; never drop the mistake.
"""

from tests.seeded_bugs.copies import Patch

SCHEDULER = {
    "running sequences do not spend the budget": Patch(
        "scheduler",
        "                tokens -= scheduled[-1].num_tokens",
        "                tokens -= 0",
    ),
    "newcomers do not spend the budget": Patch(
        "scheduler",
        "\n            tokens -= scheduled[-1].num_tokens",
        "\n            tokens -= 0",
    ),
    "newcomers are admitted when the budget is spent": Patch(
        "scheduler", "while tokens and self._can_admit()", "while self._can_admit()"
    ),
    "one newcomer a step is admitted": Patch(
        "scheduler", "while tokens and self._can_admit()", "if tokens and self._can_admit()"
    ),
    "more sequences run than there are logit rows": Patch(
        "scheduler", "min(limits.max_num_seqs, limits.max_logit_rows)", "limits.max_num_seqs"
    ),
    "a preempted sequence keeps its count of computed tokens": Patch(
        "scheduler", "            newest.num_computed = 0\n", ""
    ),
    "a preempted sequence goes to the end of the queue": Patch(
        "scheduler", "waiting.appendleft(newest)", "waiting.append(newest)"
    ),
    "the oldest sequence is preempted": Patch(
        "scheduler", "self.running.pop()", "self.running.pop(0)"
    ),
    "a preempted sequence keeps its blocks": Patch(
        "scheduler", "            self._free_blocks(newest)\n", ""
    ),
    "preemption stops one block short": Patch(
        "scheduler", "while missing > self.pool.num_free", "while missing > self.pool.num_free + 1"
    ),
    "preemption goes on with blocks to spare": Patch(
        "scheduler", "while missing > self.pool.num_free", "while missing >= self.pool.num_free"
    ),
    "a sequence that lost its blocks is scheduled": Patch(
        "scheduler", "                return False\n", "                break\n"
    ),
    "blocks are taken for computed tokens alone": Patch(
        "scheduler",
        "self.pool.blocks_for(sequence.num_known) - len",
        "self.pool.blocks_for(sequence.num_computed) - len",
    ),
    "admission ignores the watermark": Patch(
        "scheduler", "self._watermark_blocks if self.running else 0", "0"
    ),
    "a lone sequence must respect the watermark": Patch(
        "scheduler", "self._watermark_blocks if self.running else 0", "self._watermark_blocks"
    ),
    "the youngest is admitted first": Patch(
        "scheduler", "sequence = self.waiting.popleft()", "sequence = self.waiting.pop()"
    ),
    "one sequence too many runs": Patch(
        "scheduler", "== self._max_running", "== self._max_running + 1"
    ),
    "one sequence too few runs": Patch(
        "scheduler", "== self._max_running", "== max(self._max_running - 1, 1)"
    ),
    "every chunk gets a logit row": Patch("scheduler", "pending <= tokens)", "True)"),
    "a chunk that just fits gets no logit row": Patch(
        "scheduler", "pending <= tokens)", "pending < tokens)"
    ),
    "a finished sequence keeps its blocks": Patch(
        "scheduler",
        "        queue.remove(sequence)\n        self._free_blocks(sequence)\n",
        "        queue.remove(sequence)\n",
    ),
    "a freed block stays in the table": Patch(
        "scheduler", "        del sequence.block_table[:]\n", ""
    ),
}

POOL = {
    "a full last block counts for two": Patch(
        "kv.pool", "-(-num_tokens // self.block_size)", "num_tokens // self.block_size + 1"
    ),
    "a partial last block is not counted": Patch(
        "kv.pool", "-(-num_tokens // self.block_size)", "max(num_tokens // self.block_size, 1)"
    ),
    "a block is given twice": Patch(
        "kv.pool",
        "[self._free.popleft() for _ in range(count)]",
        "[self._free[index] for index in range(count)]",
    ),
    "block 0 is given away": Patch("kv.pool", "range(1, num_blocks)", "range(num_blocks)"),
    "the last block is never given": Patch(
        "kv.pool", "range(1, num_blocks)", "range(1, num_blocks - 1)"
    ),
    "a released block keeps its reference": Patch(
        "kv.pool", "            self._references[block] -= 1\n", ""
    ),
    "a released block becomes free twice": Patch(
        "kv.pool", "self._free.append(block)", "self._free.extend([block, block])"
    ),
}

STEP = {
    "positions start at 0 in every step": Patch(
        "step", "(starts - query_start[:-1])", "(-query_start[:-1])"
    ),
    "tokens are taken from the start of the sequence": Patch(
        "step",
        "sequence.token_ids[sequence.num_computed : sequence.num_computed + count]",
        "sequence.token_ids[:count]",
    ),
    "seq_lens leave out the new tokens": Patch(
        "step", "seq_lens=starts + counts", "seq_lens=starts"
    ),
    "logit rows are the first tokens": Patch(
        "step", "query_start[1:][has_logits] - 1", "query_start[:-1][has_logits]"
    ),
    "logit rows are one too far": Patch(
        "step", "query_start[1:][has_logits] - 1", "query_start[1:][has_logits]"
    ),
    "slots leave out the offset in the block": Patch(
        "step", " * kv.block_size + positions % kv.block_size", " * kv.block_size"
    ),
    "slots do not go through the block table": Patch(
        "step", "tables[owners, positions // kv.block_size]", "(positions // kv.block_size)"
    ),
    "all tokens belong to the first sequence": Patch(
        "step", "np.arange(len(counts)).repeat(counts)", "np.zeros(len(token_ids), np.int64)"
    ),
    "short block tables are filled up on the left": Patch("step", ".ljust(", ".rjust("),
    "only the first KV group is laid out": Patch(
        "step", "slots[None].repeat(groups, axis=0)", "slots[None]"
    ),
}

PLANNING_BUGS = SCHEDULER | POOL | STEP
