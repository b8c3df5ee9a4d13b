"""The life of one request inside the engine: the only noun that changes."""

from array import array
from dataclasses import dataclass, field

from triton_backend.request import Request

INT32 = "i"
"""Tokens and blocks are kept as C integers: a step joins slices of them without touching each."""


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
    token_ids: "array[int]" = field(init=False, repr=False)
    """Known tokens, prompt first."""
    block_table: "array[int]" = field(init=False)
    """Blocks held, in the order of the tokens in them."""
    num_computed: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.token_ids = array(INT32, self.request.prompt_token_ids)
        self.block_table = array(INT32)

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
