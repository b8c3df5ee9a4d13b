"""Cached blocks: found again by their tokens, kept while nobody needs the room. All a scheduler sees of KV.

The index holds one reference to each published block, so a block is exactly one of: reserved (block 0),
free, *idle* (published, held by nobody else) or held. Idle blocks are given away when free ones run out:
what was used longest ago first, and of one prompt the last block first. Blocks of one domain are never
found by another.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

from builder.errors import EngineError
from triton_backend.kv.chain import Chain
from triton_backend.kv.domains import NO_COMMON, CommonPrefixes
from triton_backend.kv.events import Cleared, EventStream, Removed, Stored, stored
from triton_backend.kv.hit import NO_HIT, Hit
from triton_backend.kv.integrity import check_cache
from triton_backend.kv.node import Node
from triton_backend.kv.pool import BlockPool
from triton_backend.kv.prefix_index import PrefixIndex
from triton_backend.kv.radix import RadixRun, radix_view, runs


class BlockCache:
    """Gives and takes back the blocks of a pool, and remembers what is in them."""

    def __init__(
        self,
        pool: BlockPool,
        *,
        clock: Callable[[], float],
        ttl_s: float | None = None,
        events: EventStream | None = None,
        common: CommonPrefixes = NO_COMMON,
    ) -> None:
        """Start empty. `clock` never goes back; idle blocks are kept for `ttl_s`, for ever if None."""
        self.pool = pool
        self._index = PrefixIndex(pool.block_size)
        # By block, used longest ago first, and each before those it builds on: see `_rest`.
        self._idle: OrderedDict[int, Node] = OrderedDict()
        self._clock = clock
        self._ttl_s = ttl_s
        self._events = events
        self._common = common

    @property
    def num_available(self) -> int:
        """Blocks that `allocate` can give: free or idle. All but those that somebody holds."""
        return self.pool.num_free + len(self._idle)

    @property
    def num_held(self) -> int:
        """Blocks that somebody holds, published or not."""
        return self.pool.num_used - len(self._idle)

    @property
    def num_idle(self) -> int:
        """Published blocks that nobody holds."""
        return len(self._idle)

    @property
    def num_cached(self) -> int:
        """Published blocks, held or not."""
        return len(self._index.nodes)

    def new_chain(self, domain: bytes | None) -> Chain:
        """Make the chain of a new sequence; with the domain None it looks up and publishes nothing."""
        return Chain(domain, self.pool.block_size, self._common)

    def match(self, chain: Chain, token_ids: "array[int]", limit: int) -> int:
        """Count the tokens of full blocks that `lookup` would find; cheap enough for a whole queue."""
        if not chain.is_shared:
            return 0
        size = self.pool.block_size
        return self._index.follow(chain, token_ids, limit // size) * size

    def lookup(self, chain: Chain, token_ids: "array[int]", limit: int) -> Hit:
        """Find what is cached of the first `limit` tokens, and take nothing.

        `limit` is below the number of known tokens where logits are wanted: one must be computed.
        """
        if chain.domain is None:
            return NO_HIT
        size = self.pool.block_size
        count = self._index.follow(chain, token_ids, limit // size)
        path = chain.path[:count]
        parent = path[-1] if path else None
        rest = token_ids[count * size : min((count + 1) * size, limit)]
        owner = chain.owner(count, token_ids)
        partial, num_partial = self._index.begins_with(parent, owner, rest)
        blocks = tuple([node.block for node in path])
        return Hit(
            blocks=blocks,
            num_tokens=count * size,
            partial_block=None if partial is None else partial.block,
            num_partial_tokens=num_partial,
            num_idle=sum([block in self._idle for block in blocks]),
            is_partial_idle=partial is not None and partial.block in self._idle,
        )

    def num_needed(self, hit: Hit, num_tokens: int) -> int:
        """Count the available blocks that a sequence of `num_tokens` tokens takes if it takes `hit`.

        With a partial block to copy, it may be one more than the sequence holds in the end.
        """
        new = self.pool.blocks_for(num_tokens) - len(hit.blocks)
        return new + hit.num_idle + hit.is_partial_idle

    def take(self, hit: Hit) -> None:
        """Take a reference to each block of a hit, the partial one included.

        The caller releases the partial one when it was copied. Who doesn't want it takes `hit.whole()`.
        """
        blocks = hit.blocks if hit.partial_block is None else (*hit.blocks, hit.partial_block)
        self.pool.share(blocks)
        for block in blocks:
            self._idle.pop(block, None)

    def share(self, blocks: Iterable[int]) -> None:
        """Take one more reference to blocks that somebody holds."""
        self.pool.share(blocks)

    def allocate(self, count: int) -> list[int]:
        """Give `count` blocks, each with one reference; idle ones are evicted when free ones run out.

        Raises:
            EngineError: fewer are available. Callers ask `num_available` first.
        """
        if count > self.num_available:
            raise EngineError(
                f"{count} blocks were asked of the KV cache; {self.num_available} are available:"
                f" {self.pool.num_free} free, {self.num_idle} idle."
            )
        evicted: list[Node] = []
        while count > self.pool.num_free:
            evicted += self._drop(next(iter(self._idle.values())))
        self._tell_removed(evicted)
        return self.pool.allocate(count)

    def release(self, blocks: Sequence[int]) -> None:
        """Give back one reference to each block of a sequence, in the order of its table.

        Those published are kept, idle; the others become free.

        Raises:
            EngineError: nobody holds one of them.
        """
        self.pool.release(blocks)
        for block in reversed(blocks):
            # The deepest of a prompt's blocks brings the others with it.
            if self._is_idle(block) and block not in self._idle:
                self._rest(self._index.by_block[block])

    def publish(
        self, chain: Chain, token_ids: "array[int]", block_table: Sequence[int], num_computed: int
    ) -> None:
        """Make the blocks that the first `num_computed` tokens fill findable, as far as they are new.

        The caller holds the blocks. A block whose tokens are there already stays the caller's alone.
        """
        if not chain.is_shared:
            return
        size = self.pool.block_size
        num_blocks = num_computed // size
        start = self._index.follow(chain, token_ids, num_blocks)
        added: list[Node] = []
        for index in range(start, num_blocks):
            key = chain.key(index, token_ids)
            if key in self._index.nodes:
                break  # The same key for other tokens: 2**-128, or forged. They can't both be there.
            node = self._index.add(
                key,
                chain.path[-1] if index else None,
                domain=chain.owner(index, token_ids),
                token_ids=token_ids[index * size : (index + 1) * size],
                block=block_table[index],
            )
            chain.path.append(node)
            added.append(node)
        self.pool.share([node.block for node in added])
        if added:
            self._use(chain.path[:start])
            self._tell_stored(added)

    def erase(self, domain: bytes) -> int:
        """Forget all blocks of a domain, and count them. Who holds some keeps them, unpublished.

        The caller closes the chains of the domain's sequences in flight, or they publish again.
        """
        removed: list[Node] = []
        for node in list(self._index.nodes.values()):
            if node.domain == domain and node.is_indexed:
                removed += self._drop(node)
        self._tell_removed(removed)
        return len(removed)

    @property
    def rest_s(self) -> float | None:
        """Seconds until `expire` has something to forget, if nothing is used until then; None if it never has."""
        if self._ttl_s is None or not self._idle:
            return None
        oldest = next(iter(self._idle.values()))
        return max(0.0, oldest.last_use_s + self._ttl_s - self._clock())

    def expire(self) -> int:
        """Forget idle blocks that were not used for the time to live, and count them."""
        if self._ttl_s is None:
            return 0
        removed: list[Node] = []
        used_until_s = self._clock() - self._ttl_s
        while self._idle and next(iter(self._idle.values())).last_use_s <= used_until_s:
            removed += self._drop(next(iter(self._idle.values())))
        self._tell_removed(removed)
        return len(removed)

    def clear(self) -> None:
        """Forget everything: what is in the blocks is in doubt."""
        self._free(self._index.clear())
        if self._events is not None:
            self._events.emit(Cleared())

    def snapshot(self) -> list[Stored]:
        """Describe all that is stored as events, parents first: where a new subscriber begins."""
        return [stored(run, run[0].domain) for _, run in runs(self._index, self.pool)]

    def view(self) -> list[RadixRun]:
        """Give the tree of published prefixes, for people."""
        return radix_view(self._index, self.pool)

    def check_integrity(self, tables: Iterable[Sequence[int]]) -> None:
        """Prove that each block is exactly one of reserved, free, idle or held, and the index a forest.

        `tables` are all the blocks that are held, once per reference.

        Raises:
            EngineError: it isn't so; the message shows the terms of the broken equation.
        """
        check_cache(self._index, self._idle, self.pool, tables)

    def _is_idle(self, block: int) -> bool:
        """Whether a block is published and held by nobody but the index."""
        return self.pool.num_references(block) == 1 and block in self._index.by_block

    def _use(self, path: Iterable[Node]) -> None:
        """Note that a path is built on now, by one who may hold copies of it instead.

        What is idle of it would go soon otherwise, and take the new blocks along.
        """
        idle = [node for node in path if node.block in self._idle]
        if idle:
            self._rest(idle[-1])

    def _rest(self, node: Node) -> None:
        """Note that a block and all it builds on were used until now, where nobody holds them.

        The deepest goes first, so an idle block always comes before those it builds on: the first of
        all has nothing idle after it.
        """
        now_s = self._clock()
        each: Node | None = node
        while each is not None:
            if self.pool.num_references(each.block) == 1:
                each.last_use_s = now_s
                self._idle[each.block] = each
                self._idle.move_to_end(each.block)
            each = each.parent

    def _drop(self, node: Node) -> list[Node]:
        """Forget a block and all that builds on it; give them. Those held stay with their holders."""
        removed = self._index.remove(node)
        self._free(removed)
        return removed

    def _free(self, removed: Iterable[Node]) -> None:
        for node in removed:
            self._idle.pop(node.block, None)
            self.pool.release((node.block,))

    def _tell_removed(self, nodes: list[Node]) -> None:
        if nodes and self._events is not None:
            self._events.emit(Removed(tuple([node.key for node in nodes])))

    def _tell_stored(self, nodes: list[Node]) -> None:
        """Tell of a run of new blocks; those common to all are one run, the domain's own another."""
        if self._events is None:
            return
        for domain, group in groupby(nodes, lambda node: node.domain):
            self._events.emit(stored(list(group), domain))
