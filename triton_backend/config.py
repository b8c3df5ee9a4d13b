"""Settings of the engine loop. None of them changes an answer."""

from dataclasses import dataclass, field
from enum import StrEnum

from builder.errors import UserError, unknown_name
from triton_backend.field_checks import shown


class PolicyName(StrEnum):
    """Which new request is admitted next; those that lost their blocks go before all new ones."""

    FCFS = "fcfs"
    """In the order of arrival."""
    PRIORITY = "priority"
    """The lowest `Request.priority`."""
    SRPT = "srpt"
    """The shortest prompt; waiting makes up for length."""
    FAIR = "fair"
    """The tenant that was served the fewest tokens."""
    LONGEST_PREFIX = "longest_prefix"
    """The most tokens whose KV can be reused; waiting makes up for them."""


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """How the engine spends memory and time.

    Raises:
        UserError: a setting is out of bounds.
    """

    watermark: float = 0.01
    """Share of the pool kept free when admitting beside others, so that they can grow (1 block at least)."""
    num_candidates: int = 64
    """N: candidates asked of the executor per row when some row of a step is drawn at random."""
    policy: str = PolicyName.FCFS
    max_waiting: int = 1024
    """Answers that may wait beyond those a step has room for; one more would hold its prompt for minutes."""
    max_waiting_tokens: int | None = None
    """The same in tokens of prompts; None is no bound."""
    max_chunk_tokens: int | None = None
    """Tokens of prompts in a step that others wait for with half an answer: it bounds the time between two of
    their tokens. None is no bound but the step's own."""
    prefix_reuse: bool = True
    """Reuse the KV of earlier requests of the same domain that began with the same tokens."""
    cache_ttl_s: float | None = None
    """Time after its last use at which a cached block is forgotten; None keeps it until its room is needed."""
    common_prefixes: tuple[tuple[int, str], ...] = field(default=(), repr=False)
    """(number of tokens, `kv.domains.prefix_digest` of them): beginnings of prompts that all domains may share."""
    speculation: bool = False
    """Draft tokens by prompt lookup for requests that don't say."""
    max_draft_tokens: int = 4
    """Tokens drafted per answer and step."""

    def __post_init__(self) -> None:
        if not _is_number(self.watermark) or not 0 <= self.watermark < 1:
            raise UserError(
                f"watermark must be a share from 0 to below 1; got {shown(self.watermark)}."
            )
        if self.policy not in list(PolicyName):
            raise UserError(unknown_name("policy", str(self.policy), list(PolicyName)))
        for name in COUNTS:
            value = getattr(self, name)
            if value is not None and (type(value) is not int or not 1 <= value <= MAX_COUNT):
                raise UserError(
                    f"{name} must be a whole number from 1 to {MAX_COUNT}; got {shown(value)}."
                )
        if self.cache_ttl_s is not None and not (
            _is_number(self.cache_ttl_s) and self.cache_ttl_s > 0
        ):
            raise UserError(f"cache_ttl_s must be above 0; got {shown(self.cache_ttl_s)}.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


MAX_COUNT = 999_999_999
COUNTS = (
    "num_candidates",
    "max_waiting",
    "max_waiting_tokens",
    "max_chunk_tokens",
    "max_draft_tokens",
)
