"""The owner of all blocks of a KV pool: who may take one, and who holds it.

It counts references and knows neither tokens nor sequences. Block 0 is never given: padding points at
it. KV groups are taken in lockstep (block b of every group at once), so one pool speaks for all.
"""

from collections import Counter, deque
from collections.abc import Iterable, Sequence

from builder.errors import EngineError


class BlockPool:
    """`num_blocks` blocks of `block_size` tokens, block 0 included but reserved."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        # Oldest release first, so that content dies as late as possible.
        self._free = deque(range(1, num_blocks))
        self._references = [0] * num_blocks

    @property
    def num_free(self) -> int:
        """Blocks that nobody holds."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - 1 - len(self._free)

    def blocks_for(self, num_tokens: int) -> int:
        """Count the blocks that hold `num_tokens` tokens."""
        return -(-num_tokens // self.block_size)

    def allocate(self, count: int) -> list[int]:
        """Give `count` free blocks, each with one reference.

        Raises:
            EngineError: fewer are free. Callers ask `num_free` first.
        """
        if count > len(self._free):
            raise EngineError(
                f"{count} blocks were asked of the KV pool; {self.num_free} are free."
            )
        blocks = [self._free.popleft() for _ in range(count)]
        for block in blocks:
            self._references[block] = 1
        return blocks

    def num_references(self, block: int) -> int:
        """Count who holds a block."""
        return self._references[block]

    def share(self, blocks: Iterable[int]) -> None:
        """Give one more reference to each block.

        Raises:
            EngineError: nobody holds one of them.
        """
        for block in blocks:
            if self._references[block] == 0:
                raise EngineError(f"block {block} was shared, but nobody holds it.")
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Give back one reference to each block; those without any become free.

        Raises:
            EngineError: nobody holds one of them.
        """
        for block in blocks:
            if self._references[block] == 0:
                raise EngineError(f"block {block} was released, but nobody holds it.")
            self._references[block] -= 1
            if self._references[block] == 0:
                self._free.append(block)

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Prove that `tables`, all that is held, and the free list account for every block once.

        Raises:
            EngineError: they do not; the message shows each term of the broken equation.
        """
        held = Counter(block for table in tables for block in table)
        free = Counter(self._free)
        for block, references in enumerate(self._references):
            is_free = int(block > 0 and references == 0)
            if held[block] != references or free[block] != is_free:
                raise EngineError(
                    f"KV pool broken at block {block}: in {held[block]} tables,"
                    f" {references} references, {free[block]} times in the free list."
                )
        if len(free) + len(held) + 1 != self.num_blocks:
            raise EngineError(
                f"KV pool broken: {len(free)} free + {len(held)} held + 1 reserved"
                f" != {self.num_blocks} blocks."
            )
