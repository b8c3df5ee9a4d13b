"""The keys of one sequence's complete blocks, computed when they are first asked for."""

from array import array

from triton_backend.kv.domains import NO_COMMON, CommonPrefixes
from triton_backend.kv.keys import COMMON, child_key, fork_key, root_key
from triton_backend.kv.node import Node


class Chain:
    """Part of a sequence: grows with its tokens, and remembers which of its blocks were found.

    The known tokens it is asked about only ever grow at the end.

    |<-- common blocks -->|<-- the domain's own blocks -->|
    |<-- path: found or published, tokens compared -->|
    """

    def __init__(
        self, domain: bytes | None, block_size: int, common: CommonPrefixes = NO_COMMON
    ) -> None:
        """Start without keys. With the domain None nothing is ever shared."""
        self.domain = domain
        self.path: list[Node] = []
        """Nodes of the first blocks, kept by the index; those at the end may have left it since."""
        self._block_size = block_size
        self._common = common
        self._keys: list[bytes] = []
        self._num_common: int | None = None

    @property
    def is_shared(self) -> bool:
        """Whether blocks may be looked up and published."""
        return self.domain is not None

    def close(self) -> None:
        """Look up and publish nothing any more: the domain is being erased."""
        self.domain = None
        self.path.clear()

    def key(self, index: int, token_ids: "array[int]") -> bytes:
        """Give the key of a complete block of the known tokens, of a chain that is shared."""
        size = self._block_size
        while len(self._keys) <= index:
            start = len(self._keys) * size
            parent = self._origin(len(self._keys), token_ids)
            self._keys.append(child_key(parent, token_ids[start : start + size]))
        return self._keys[index]

    def owner(self, index: int, token_ids: "array[int]") -> bytes:
        """Give the domain that a block belongs to: `COMMON`, or the sequence's own."""
        assert self.domain is not None
        return COMMON if index < self._count_common(token_ids) else self.domain

    def _origin(self, index: int, token_ids: "array[int]") -> bytes:
        """Give the key that a block's key is chained from."""
        owner = self.owner(index, token_ids)
        if index == 0:
            return root_key(owner)
        previous = self._keys[index - 1]
        return fork_key(previous, owner) if index == self._num_common else previous

    def _count_common(self, token_ids: "array[int]") -> int:
        """Count the blocks that are common to all. The first tokens asked about decide: the prompt."""
        if self._num_common is None:
            self._num_common = self._common.longest(token_ids) // self._block_size
        return self._num_common
