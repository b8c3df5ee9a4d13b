"""The life of one request inside the engine: the only noun that changes."""

from array import array
from dataclasses import dataclass, field

from triton_backend.drafting import Drafter
from triton_backend.kv.chain import Chain
from triton_backend.occurrences import INT32, Occurrences
from triton_backend.request import Request, TokenLogprobs
from triton_backend.structured.mask import AnswerMask
from triton_backend.timeline import Timeline


@dataclass(slots=True, eq=False)
class Sequence:
    """Known tokens are prompt and answer; computed tokens have their KV in the blocks of the table.

    |<-- prompt -->|<-- generated -->|
    |<-- computed -->|<-- pending -->|    num_computed < num_known, always
    |<-- blocks of the table ----------->|    while running; none while waiting
    """

    request: Request
    seed: int
    """Names the stream of random numbers: the request's seed, or one drawn at submit."""
    max_known: int
    """Known tokens at which the answer ends with `length`."""
    stopping_ids: frozenset[int]
    """Ids that end the answer."""
    chain: Chain = field(repr=False)
    """Keys of its complete blocks."""
    choice: int = 0
    """Which of the request's answers this is, from 0."""
    mask: AnswerMask | None = field(default=None, repr=False)
    """What a constraint allows the answer to go on with; None without a constraint."""
    drafter: Drafter | None = field(default=None, repr=False)
    """Drafts the next tokens; None without speculation."""
    occurrences: Occurrences | None = field(default=None, repr=False)
    """Counts ids for penalties; None without any."""
    siblings: "list[Sequence]" = field(default_factory=list, repr=False)
    """The choices of the request that are not over, itself included."""
    token_ids: "array[int]" = field(init=False, repr=False)
    """Known tokens, prompt first."""
    block_table: "array[int]" = field(init=False)
    """Blocks held, in the order of the tokens in them."""
    num_computed: int = field(init=False, default=0)
    num_cached: int = field(init=False, default=0)
    """Tokens of the prompt whose KV was reused when it was first admitted."""
    num_charged: int = field(init=False, default=0)
    """The most tokens that were ever computed or reused: what its tenant was charged for."""
    num_admissions: int = field(init=False, default=0)
    arrived_s: float = field(init=False, default=0.0)
    """When it was queued, on the scheduler's clock."""
    prompt_logprobs: list[TokenLogprobs] = field(init=False, repr=False, default_factory=list)
    """Those of the prompt's second token and on, as far as they are computed; empty unless asked for."""
    timeline: Timeline = field(init=False, repr=False, default_factory=Timeline)

    def __post_init__(self) -> None:
        ground = self.request.groundwork
        # Of bytes, an array of 32,000 ids is made 100 times as fast as of a tuple.
        prompt = self.request.prompt_token_ids if ground is None else ground.prompt
        self.token_ids = array(INT32, prompt)
        self.block_table = array(INT32)

    @property
    def answer_id(self) -> tuple[str, int]:
        """Names the answer among all that an engine holds: the request's id and the choice."""
        return self.request.request_id, self.choice

    @property
    def num_known(self) -> int:
        """Tokens of prompt and answer."""
        return len(self.token_ids)

    @property
    def num_pending(self) -> int:
        """Known tokens whose KV does not exist yet."""
        return len(self.token_ids) - self.num_computed

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return len(self.request.prompt_token_ids)

    @property
    def num_generated(self) -> int:
        """Tokens of the answer so far."""
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def asks_prompt_logprobs(self) -> bool:
        """Whether it tells the log-probabilities of the prompt: one of the choices does, the first."""
        return self.choice == 0 and self.request.params.prompt_logprobs is not None

    @property
    def first_row(self) -> int:
        """Position of the first token whose logits are still wanted; it and all after it must be computed.

        It is the last known one, unless log-probabilities of the prompt are missing.
        """
        if self.asks_prompt_logprobs and len(self.prompt_logprobs) < self.num_prompt - 1:
            return len(self.prompt_logprobs)
        return len(self.token_ids) - 1
