"""Short ways to make what the tests of the serving core need."""

from typing import Any

from builder.artifact.config import Limits
from triton_backend.kv.pool import BlockPool
from triton_backend.request import Request, SamplingParams
from triton_backend.scheduler import Scheduler
from triton_backend.sequence import Sequence

GREEDY = SamplingParams(temperature=0)


def make_limits(**given: int) -> Limits:
    """Limits that no test meets by accident."""
    sizes = {
        "max_seq_len": 1000,
        "max_num_seqs": 100,
        "max_num_tokens": 1000,
        "max_logit_rows": 100,
        "num_blocks": 1000,
    }
    return Limits(**sizes | given)


def make_sequence(name: str, num_prompt: int, *, first_token: int = 0, **params: Any) -> Sequence:
    """A sequence with prompt tokens `first_token`, `first_token` + 1 and so on; greedy by default."""
    prompt = tuple(range(first_token, first_token + num_prompt))
    request = Request(name, prompt, SamplingParams(**{"temperature": 0, **params}))
    stopping = frozenset(request.params.stop_token_ids)
    seed = request.params.seed or 0
    return Sequence(request=request, seed=seed, max_known=1000, stopping_ids=stopping)


def make_scheduler(
    *sequences: Sequence, block_size: int = 4, watermark: float = 0.0, **limits: int
) -> Scheduler:
    """A scheduler with sequences waiting."""
    made = make_limits(**limits)
    scheduler = Scheduler(made, BlockPool(made.num_blocks, block_size), watermark=watermark)
    for sequence in sequences:
        scheduler.add(sequence)
    return scheduler


def make_running(
    scheduler: Scheduler, name: str, num_known: int, *, num_computed: int, num_blocks: int
) -> Sequence:
    """A sequence that runs already, the youngest so far, with so many tokens and blocks."""
    sequence = make_sequence(name, num_known)
    sequence.num_computed = num_computed
    sequence.block_table.extend(scheduler.pool.allocate(num_blocks))
    scheduler.running.append(sequence)
    return sequence


def compute(scheduler: Scheduler) -> list[tuple[str, int, bool]]:
    """Plan a step, count it as computed, append a token per logit row; give the plan in short."""
    plan = scheduler.plan()
    for sequence, num_tokens, has_logits in plan.scheduled:
        sequence.num_computed += num_tokens
        if has_logits:
            sequence.token_ids.append(0)
    return [
        (sequence.request.request_id, num_tokens, has_logits)
        for sequence, num_tokens, has_logits in plan.scheduled
    ]
