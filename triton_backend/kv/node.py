"""A published block: what the index knows of it."""

from array import array
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Node:
    """A complete block that can be found again. The tree of nodes is the tree of token prefixes."""

    key: bytes
    parent: "Node | None" = field(repr=False)
    """The block before it; None for the first block of a prompt."""
    domain: bytes = field(repr=False)
    """Whose it is; `COMMON` for everybody's."""
    token_ids: "array[int]" = field(repr=False)
    """`[block_size]`; compared on a hit."""
    block: int
    children: "dict[bytes, Node]" = field(default_factory=dict, repr=False)
    """Blocks that come after it, by key; oldest first."""
    last_use_s: float = 0.0
    """When it was last given back, on the cache's clock."""
    is_indexed: bool = True
    """False once it was evicted, erased or cleared; it never comes back."""
