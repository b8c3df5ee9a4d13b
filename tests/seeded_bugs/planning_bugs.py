"""Seeded bugs in what a step computes and where: scheduler, queue, reuse, packer.

They are permanent. When code changes so that a patch no longer fits, renew it; never drop the mistake.
"""

from tests.seeded_bugs.copies import Patch

SCHEDULER = {
    "shares do not spend the budget": Patch(
        "allowance",
        "self.num_tokens -= share.num_tokens\n        self.num_rows -= share.num_rows",
        "self.num_rows -= share.num_rows",
    ),
    "shares do not spend logit rows": Patch(
        "allowance", "        self.num_rows -= share.num_rows\n", ""
    ),
    "drafts do not spend the budget": Patch("allowance", "self.num_tokens -= len(drafted)", "pass"),
    "newcomers are admitted when the budget is spent": Patch(
        "scheduler", "if allowance.is_spent or _is_cut(shares):", "if _is_cut(shares):"
    ),
    "newcomers are admitted behind a prompt that is cut": Patch(
        "scheduler", "if allowance.is_spent or _is_cut(shares):", "if allowance.is_spent:"
    ),
    "one newcomer a step is admitted": Patch(
        "scheduler",
        "            shares.append(allowance.share(sequence))\n        return None\n",
        "            shares.append(allowance.share(sequence))\n"
        "            return WaitReason.BUDGET if self.waiting else None\n        return None\n",
    ),
    "more sequences run than there are logit rows": Patch(
        "scheduler", "min(limits.max_num_seqs, limits.max_logit_rows)", "limits.max_num_seqs"
    ),
    "the log-probabilities of a prompt take more rows than there are": Patch(
        "allowance", "first_row + self.num_rows)", "first_row + 10**6)"
    ),
    "a preempted sequence keeps its count of computed tokens": Patch(
        "scheduler", "        newest.num_computed = 0\n", ""
    ),
    "a preempted sequence goes to the end of the queue": Patch(
        "waiting", "_preempted.appendleft(sequence)", "_preempted.append(sequence)"
    ),
    "new sequences overtake those that lost their blocks": Patch(
        "waiting", "if self._preempted:", "if self._preempted and not self._new:"
    ),
    "the oldest sequence is preempted": Patch(
        "scheduler", "self.running.pop()", "self.running.pop(0)"
    ),
    "a preempted sequence keeps its blocks": Patch(
        "scheduler", "        self._give_back(newest, 0)\n", ""
    ),
    "preemption stops one block short": Patch(
        "scheduler",
        "while missing > self.cache.num_available",
        "while missing > self.cache.num_available + 1",
    ),
    "preemption goes on with blocks to spare": Patch(
        "scheduler",
        "while missing > self.cache.num_available",
        "while missing >= self.cache.num_available > 0 or missing > self.cache.num_available",
    ),
    "cached blocks are not counted when room is sought": Patch(
        "scheduler",
        "while missing > self.cache.num_available",
        "while missing > self.pool.num_free",
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
    "whoever lost its blocks is admitted in the same step": Patch(
        "scheduler", "WaitReason.BLOCKS if preempted else self._admit", "self._admit"
    ),
    "the youngest is admitted first": Patch(
        "waiting", "return self._new[0].sequence", "return self._new[-1].sequence"
    ),
    "one sequence too many runs": Patch(
        "scheduler", "len(self.running) == self.max_running", "len(self.running) > self.max_running"
    ),
    "one sequence too few runs": Patch(
        "scheduler",
        "len(self.running) == self.max_running",
        "len(self.running) >= max(self.max_running - 1, 1)",
    ),
    "every chunk gets a logit row": Patch(
        "allowance", "max(0, end - first_row))", "max(1, end - first_row))"
    ),
    "a chunk that just fits gets no logit row": Patch(
        "allowance", "max(0, end - first_row))", "max(0, end - first_row - 1))"
    ),
    "prompts are not held back while others wait for tokens": Patch(
        "scheduler", "self._config.max_chunk_tokens or self", "self"
    ),
    "prompts do not spend what they may have together": Patch(
        "allowance",
        "            self.num_prompt_tokens -= share.num_tokens\n",
        "            pass\n",
    ),
    "a finished sequence keeps its blocks": Patch(
        "scheduler",
        "            self.running.remove(sequence)\n            self._give_back(sequence, 0)\n",
        "            self.running.remove(sequence)\n",
    ),
    "a freed block stays in the table": Patch(
        "scheduler", "        del sequence.block_table[num_kept:]\n", ""
    ),
    "the queue takes one more than it may": Patch(
        "scheduler", "+ count - free > bound", "+ count - free > bound + 1"
    ),
    "all choices of a request take one place in the queue": Patch(
        "scheduler", "len(self.waiting) + count - free", "len(self.waiting) + 1 - free"
    ),
    "the prompt of all choices counts once": Patch(
        "scheduler", "num_tokens + count * len", "num_tokens + len"
    ),
    "tokens that wait are not bounded": Patch(
        "scheduler", "if most is None or not self.waiting:", "if most is None or self.waiting:"
    ),
    "priority is turned around": Patch(
        "policies.priority", "sequence.request.priority", "-sequence.request.priority"
    ),
    "the longest prompt goes first": Patch(
        "policies.srpt", "sequence.num_prompt + AGEING", "AGEING"
    ),
    "short prompts overtake for ever": Patch(
        "policies.srpt", "AGEING_TOKENS_PER_S * sequence.arrived_s", "0 * sequence.arrived_s"
    ),
}

REUSE = {
    "a hit is computed again": Patch(
        "scheduler", "sequence.num_computed = hit.num_reused", "sequence.num_computed = 0"
    ),
    "one token more than the hit has counts as computed": Patch(
        "scheduler",
        "sequence.num_computed = hit.num_reused",
        "sequence.num_computed = hit.num_reused + 1",
    ),
    "a partial block is not copied": Patch(
        "scheduler", "            copies.append((hit.partial_block, blocks[0]))\n", ""
    ),
    "a partial block is copied to the last block": Patch(
        "scheduler", "(hit.partial_block, blocks[0])", "(hit.partial_block, blocks[-1])"
    ),
    "a block that is copied from may be evicted": Patch(
        "scheduler", "            self._copied.append(hit.partial_block)\n", ""
    ),
    "blocks that were copied from are never given back": Patch(
        "scheduler", "        self.cache.release(self._copied)\n", ""
    ),
    "copies go the other way": Patch(
        "step", "(group, *pair) for pair in pairs", "(group, *pair[::-1]) for pair in pairs"
    ),
    "blocks are copied in the first KV group alone": Patch(
        "step", "for group in range(num_groups)]", "for group in range(1)]"
    ),
    "a block to copy is not counted": Patch(
        "kv.cache", "new + hit.num_idle + hit.is_partial_idle", "new + hit.num_idle"
    ),
    "idle blocks of a hit are not counted": Patch(
        "kv.cache", "new + hit.num_idle + hit.is_partial_idle", "new + hit.is_partial_idle"
    ),
    "the last known token is reused too": Patch(
        "reuse", "min(sequence.num_prompt, sequence.first_row)", "sequence.num_prompt"
    ),
    "choices share a prompt that is not computed": Patch(
        "reuse", "each.num_computed >= sequence.num_prompt", "each.num_computed > 0"
    ),
    "choices share the answer's block of another": Patch(
        "reuse", "block_table[:num_blocks]", "block_table[: num_blocks + 1]"
    ),
    "log-probabilities of a prompt come from the cache": Patch(
        "sequence", "return len(self.prompt_logprobs)", "return len(self.token_ids) - 1"
    ),
    "reused tokens are told after a preemption too": Patch(
        "scheduler", "        if not sequence.num_admissions:\n", "        if True:\n"
    ),
    "what is not to be stored is published": Patch(
        "scheduler", " and sequence.request.store:", ":"
    ),
    "drafts count as computed when blocks are published": Patch(
        "scheduler",
        "sequence.chain, sequence.token_ids, sequence.block_table, num_computed\n",
        "sequence.chain, sequence.token_ids, sequence.block_table, num_computed + len(drafted)\n",
    ),
    "blocks of rejected drafts are kept": Patch(
        "scheduler",
        "            if drafted:\n                self._give_back",
        "            if 0:\n                self._give_back",
    ),
    "drafts take blocks below the watermark": Patch(
        "scheduler",
        "self.cache.num_available - self._watermark_blocks)",
        "self.cache.num_available + 9)",
    ),
    "drafts go beyond the answer": Patch(
        "scheduler", "sequence.max_known - sequence.num_known - 1,", "sequence.max_known,"
    ),
    "a prompt that is cut is drafted for": Patch(
        "scheduler", " or share.num_tokens < sequence.num_pending:", ":"
    ),
}

STEP = {
    "positions start at 0 in every step": Patch(
        "step", "positions.extend(range(start, end))", "positions.extend(range(end - start))"
    ),
    "tokens are taken from the start of the sequence": Patch(
        "step",
        "sequence.token_ids[sequence.num_computed : sequence.num_computed + count]",
        "sequence.token_ids[:count]",
    ),
    "seq_lens leave out the new tokens": Patch(
        "step", "seq_lens.append(end)", "seq_lens.append(start)"
    ),
    "logit rows are the first tokens": Patch(
        "step",
        "range(len(token_ids) - share.num_rows, len(token_ids))",
        "range(query_start[-2], query_start[-2] + share.num_rows)",
    ),
    "logit rows are one too far": Patch(
        "step",
        "range(len(token_ids) - share.num_rows, len(token_ids))",
        "range(len(token_ids) - share.num_rows + 1, len(token_ids) + 1)",
    ),
    "drafted tokens are not laid out": Patch(
        "step",
        "known + array(INT32, drafted) if drafted",
        "known + known[:1] * len(drafted) if drafted",
    ),
    "slots leave out the offset in the block": Patch("step", "* size + place", "* size"),
    "slots do not go through the block table": Patch(
        "step", "table[start // size] * size", "(start // size) * size"
    ),
    "all tokens belong to the first sequence": Patch(
        "step",
        "_slots(share.sequence.block_table,",
        "_slots(plan.scheduled[0].sequence.block_table,",
    ),
    "runs of slots do not end with their block": Patch(
        "step", "count = min(size - place, end - start)", "count = end - start"
    ),
    "short block tables are filled up on the left": Patch("step", ".ljust(", ".rjust("),
    "only the first KV group is laid out": Patch(
        "step",
        "np.frombuffer(slots, np.int32)[None].repeat(groups, axis=0)",
        "np.frombuffer(slots, np.int32)[None]",
    ),
}

PLANNING_BUGS = SCHEDULER | REUSE | STEP
