"""Short ways to make what the tests of the serving core need."""

from typing import Any

from builder.artifact.config import Limits
from triton_backend.config import EngineConfig
from triton_backend.drafting import Drafter
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.chain import Chain
from triton_backend.kv.pool import BlockPool
from triton_backend.occurrences import Occurrences, distinct
from triton_backend.request import Request, SamplingParams
from triton_backend.scheduler import Scheduler
from triton_backend.sequence import Sequence

GREEDY = SamplingParams(temperature=0)
BLOCK_SIZE = 4


class Clock:
    """Stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


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


def make_request(
    name: str, prompt: tuple[int, ...], *, about: dict[str, Any] | None = None, **params: Any
) -> Request:
    """A request that is greedy by default; `about` are its fields besides the parameters."""
    return Request(name, prompt, SamplingParams(**{"temperature": 0, **params}), **(about or {}))


def make_sequence(
    name: str,
    num_prompt: int,
    *,
    first_token: int = 0,
    about: dict[str, Any] | None = None,
    **params: Any,
) -> Sequence:
    """A sequence with prompt tokens `first_token`, `first_token` + 1 and so on; it shares no blocks by default."""
    prompt = tuple(range(first_token, first_token + num_prompt))
    counted = Occurrences(distinct(prompt), num_prompt=num_prompt)
    request = make_request(name, prompt, about={"domain": None, **(about or {})}, **params)
    return Sequence(
        request=request,
        seed=request.params.seed or 0,
        max_known=1000,
        stopping_ids=frozenset(request.params.stop_token_ids),
        chain=Chain(request.domain, BLOCK_SIZE),
        drafter=Drafter() if request.params.speculation else None,
        occurrences=counted if request.params.is_penalised else None,
    )


def make_siblings(name: str, num_prompt: int, count: int) -> list[Sequence]:
    """The choices of one request."""
    siblings = [make_sequence(name, num_prompt) for _ in range(count)]
    for choice, sequence in enumerate(siblings):
        sequence.choice = choice
        sequence.siblings = siblings
    return siblings


def make_scheduler(
    *sequences: Sequence,
    block_size: int = BLOCK_SIZE,
    settings: dict[str, Any] | None = None,
    clock: Clock | None = None,
    **limits: int,
) -> Scheduler:
    """A scheduler with sequences waiting; one that shares blocks needs the default block size."""
    made, clock = make_limits(**limits), clock or Clock()
    cache = BlockCache(BlockPool(made.num_blocks, block_size), clock=clock)
    config = EngineConfig(**{"watermark": 0.0, **(settings or {})})
    scheduler = Scheduler(made, cache, config=config, clock=clock)
    for sequence in sequences:
        scheduler.add(sequence)
    return scheduler


def make_running(
    scheduler: Scheduler, name: str, num_known: int, *, num_computed: int, num_blocks: int
) -> Sequence:
    """A sequence that runs already, the youngest so far, with so many tokens and blocks."""
    sequence = make_sequence(name, num_known)
    sequence.num_computed = num_computed
    sequence.num_admissions = 1
    scheduler._shares.enter(sequence.request.tenant)
    sequence.block_table.extend(scheduler.pool.allocate(num_blocks))
    scheduler.running.append(sequence)
    return sequence


def compute(scheduler: Scheduler, token_id: int = 0) -> list[tuple[str, int, int]]:
    """Plan a step, count it as done, append a token per last row; give each share's tokens and rows."""
    plan = scheduler.plan()
    for share in plan.scheduled:
        sequence = share.sequence
        sequence.num_computed += share.num_known_tokens
        if sequence.num_computed == sequence.num_known:
            sequence.token_ids.append(token_id)
    scheduler.settle(plan)
    return [
        (share.sequence.request.request_id, share.num_tokens, share.num_rows)
        for share in plan.scheduled
    ]
