"""Sequences that use a block cache, and what is written in each block: who reads finds the right tokens or fails."""

from array import array
from collections.abc import Iterable, Sequence

from triton_backend.kv.cache import BlockCache
from triton_backend.kv.chain import Chain
from triton_backend.kv.domains import NO_COMMON, CommonPrefixes, prefix_digest
from triton_backend.kv.events import EventStream
from triton_backend.kv.hit import Hit
from triton_backend.kv.pool import BlockPool

Written = tuple[bytes | None, tuple[int, ...]]
"""What a slot holds: who computed it, and all tokens up to it."""


class Clock:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def ids(*tokens: int) -> "array[int]":
    return array("i", tokens)


def common_of(*prefixes: Sequence[int]) -> CommonPrefixes:
    return CommonPrefixes((len(prefix), prefix_digest(prefix)) for prefix in prefixes)


class Player:
    """A sequence as the cache sees it."""

    def __init__(self, domain: bytes | None, tokens: Iterable[int], chain: Chain) -> None:
        self.domain = domain
        self.token_ids = array("i", tokens)
        self.table = array("i")
        self.num_computed = 0
        self.chain = chain


class Ledger:
    def __init__(
        self,
        num_blocks: int = 20,
        block_size: int = 4,
        *,
        ttl_s: float | None = None,
        events: EventStream | None = None,
        common: Sequence[Sequence[int]] = (),
    ) -> None:
        self.clock = Clock()
        self.common = common
        self.cache = BlockCache(
            BlockPool(num_blocks, block_size),
            clock=self.clock,
            ttl_s=ttl_s,
            events=events,
            common=common_of(*common) if common else NO_COMMON,
        )
        self.size = block_size
        self.players: list[Player] = []
        self.content: dict[int, list[Written | None]] = {}

    def num_common_tokens(self, token_ids: "array[int]") -> int:
        """Tokens in the full blocks of the longest common prefix."""
        lengths = [len(run) for run in self.common if list(token_ids[: len(run)]) == list(run)]
        return max(lengths, default=0) // self.size * self.size

    def start(self, domain: bytes | None, tokens: Iterable[int]) -> Player | None:
        """Admit a sequence with all it can reuse; None if it doesn't fit."""
        player = Player(domain, tokens, self.cache.new_chain(domain))
        return player if self.admit(player) else None

    def admit(self, player: Player) -> bool:
        known = len(player.token_ids)
        hit = self.cache.lookup(player.chain, player.token_ids, known - 1)
        self.check_hit(player, hit)
        if self.cache.num_needed(hit, known) > self.cache.num_available:
            hit = hit.whole()
        if self.cache.num_needed(hit, known) > self.cache.num_available:
            return False
        self.cache.take(hit)
        blocks = self.allocate(self.cache.pool.blocks_for(known) - len(hit.blocks))
        if hit.partial_block is not None:
            copied = self.content[hit.partial_block][: hit.num_partial_tokens]
            self.content[blocks[0]][: hit.num_partial_tokens] = copied
            self.cache.release([hit.partial_block])
        player.table.extend([*hit.blocks, *blocks])
        player.num_computed = hit.num_reused
        self.players.append(player)
        return True

    def allocate(self, count: int) -> list[int]:
        blocks = self.cache.allocate(count)
        for block in blocks:
            self.content[block] = [None] * self.size
        return blocks

    def compute(self, player: Player, count: int | None = None) -> None:
        """Write the next tokens, all that are pending by default, and publish."""
        pending = len(player.token_ids) - player.num_computed
        for _ in range(pending if count is None else min(count, pending)):
            place = player.num_computed
            written = player.domain, tuple(player.token_ids[: place + 1])
            self.content[player.table[place // self.size]][place % self.size] = written
            player.num_computed += 1
        self.cache.publish(player.chain, player.token_ids, player.table, player.num_computed)

    def grow(self, player: Player, token: int) -> bool:
        """Append a token, with a block for it if it needs one; say no if there is none."""
        if len(player.token_ids) == len(player.table) * self.size:
            if not self.cache.num_available:
                return False
            player.table.extend(self.allocate(1))
        player.token_ids.append(token)
        return True

    def stop(self, player: Player) -> None:
        """Give everything back; the player may be admitted again."""
        self.players.remove(player)
        self.cache.release(player.table)
        del player.table[:]
        player.num_computed = 0

    def serve(self, domain: bytes | None, *tokens: int) -> Hit:
        """Let a sequence come, be computed and go; give what it found."""
        player = Player(domain, tokens, self.cache.new_chain(domain))
        hit = self.find(domain, *tokens)
        assert self.admit(player)
        self.compute(player)
        self.stop(player)
        return hit

    def find(self, domain: bytes | None, *tokens: int) -> Hit:
        """Look up, as a new sequence would."""
        token_ids = ids(*tokens)
        return self.cache.lookup(self.cache.new_chain(domain), token_ids, len(token_ids) - 1)

    def check_hit(self, player: Player, hit: Hit) -> None:
        """Each token that would be reused was computed after the same tokens, by one who may share it."""
        common = self.num_common_tokens(player.token_ids)
        places = [(block, offset) for block in hit.blocks for offset in range(self.size)]
        places += [(hit.partial_block or 0, offset) for offset in range(hit.num_partial_tokens)]
        assert len(places) == hit.num_reused < len(player.token_ids)
        for place, (block, offset) in enumerate(places):
            written = self.content[block][offset]
            assert written is not None
            assert written[1] == tuple(player.token_ids[: place + 1])
            assert player.domain is not None
            assert written[0] == player.domain or place < common

    def check(self) -> None:
        self.cache.check_integrity([player.table for player in self.players])
        held = {block for player in self.players for block in player.table}
        assert self.cache.num_held == len(held)
        assert self.cache.num_available == self.cache.pool.num_blocks - 1 - len(held)
