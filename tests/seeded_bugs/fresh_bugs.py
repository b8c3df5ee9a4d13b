"""Seeded bugs that were written when the suite was done, to see what it catches at first sight.

It was 4 of 10. One made no difference (a queue that takes another choice of the same request out: the first
is always the next). Five went unseen: cached tokens told too low, credit for tenants that come back, drafts from a
wrong place, a last use that is not noted, hits counted twice. The suite has watched for each since.
"""

from tests.seeded_bugs.copies import Patch

FRESH_BUGS = {
    "the deadline of an answer that is over is kept": Patch(
        "engine", "        self._deadlines.pop(sequence, None)\n", ""
    ),
    "tokens of a partial hit are not told as cached": Patch(
        "scheduler",
        "sequence.num_cached = sequence.num_charged = hit.num_reused",
        "sequence.num_cached = sequence.num_charged = hit.num_tokens",
    ),
    "a tenant that comes back has credit": Patch(
        "policies.shares", "max(self._served.get(tenant, 0), least)", "self._served.get(tenant, 0)"
    ),
    "a draft begins one token early": Patch(
        "drafting", "token_ids[place : place + most]", "token_ids[place - 1 : place - 1 + most]"
    ),
    "the prompt has as many likeliest tokens told as the answer": Patch(
        "sampling.logprobs", "params.prompt_logprobs if row.num_behind", "params.logprobs if False"
    ),
    "the last use of a block is not noted": Patch(
        "kv.cache", "                each.last_use_s = now_s\n", ""
    ),
    "a hit is counted at every admission": Patch(
        "engine_metrics", "        if timeline.admitted_s is not None:\n            return\n", ""
    ),
    "known tokens are published for computed ones": Patch(
        "scheduler",
        "            num_computed = sequence.num_computed\n",
        "            num_computed = sequence.num_known\n",
    ),
    "greedy rows are drawn beside others": Patch(
        "sampling.sampler",
        "places = np.flatnonzero(asks.temperatures)",
        "places = np.arange(len(asks.temperatures))",
    ),
}
