"""What a lookup finds: the blocks of a sequence that need not be computed."""

from typing import NamedTuple


class Hit(NamedTuple):
    """What is cached of a sequence. It is good until the cache is next changed."""

    blocks: tuple[int, ...] = ()
    """The sequence's first blocks, complete."""
    num_tokens: int = 0
    """Tokens in them."""
    partial_block: int | None = None
    """A block to copy: its first tokens are those that come after `blocks`."""
    num_partial_tokens: int = 0
    """How many; more than 0 and fewer than a block has, if there is such a block."""
    num_idle: int = 0
    """How many of `blocks` nobody holds yet: `take` removes them from `num_available`."""
    is_partial_idle: bool = False
    """Whether it removes `partial_block` too."""

    @property
    def num_reused(self) -> int:
        """Tokens that need not be computed."""
        return self.num_tokens + self.num_partial_tokens

    def whole(self) -> "Hit":
        """Give the hit without its partial block."""
        return Hit(self.blocks, self.num_tokens, num_idle=self.num_idle)


NO_HIT = Hit()
