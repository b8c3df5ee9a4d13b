"""Seeded bugs in who holds which block and what is found again: pool, cache, index, keys.

They are permanent. When code changes so that a patch no longer fits, renew it; never drop the mistake.
"""

from tests.seeded_bugs.copies import Patch

POOL = {
    "a full last block counts for two": Patch(
        "kv.pool", "-(-num_tokens // self.block_size)", "num_tokens // self.block_size + 1"
    ),
    "a partial last block is not counted": Patch(
        "kv.pool", "-(-num_tokens // self.block_size)", "max(num_tokens // self.block_size, 1)"
    ),
    "a block is given twice": Patch(
        "kv.pool",
        "[self._free.popleft() for _ in range(count)]",
        "[self._free[index] for index in range(count)]",
    ),
    "block 0 is given away": Patch("kv.pool", "range(1, num_blocks)", "range(num_blocks)"),
    "the last block is never given": Patch(
        "kv.pool", "range(1, num_blocks)", "range(1, num_blocks - 1)"
    ),
    "a released block keeps its reference": Patch(
        "kv.pool", "            self._references[block] -= 1\n", ""
    ),
    "a released block becomes free twice": Patch(
        "kv.pool", "self._free.append(block)", "self._free.extend([block, block])"
    ),
}

CACHE = {
    "domains are left out of keys and not compared": Patch(
        "kv.chain", "else self.domain", 'else b""'
    ),
    "blocks of other domains are copied from": Patch(
        "kv.chain", "COMMON if index < self._count_common(token_ids) else", "COMMON if index else"
    ),
    "a common prefix takes the block after it along": Patch(
        "kv.chain",
        "self._common.longest(token_ids) // self._block_size",
        "-(-self._common.longest(token_ids) // self._block_size)",
    ),
    "a key is not chained": Patch(
        "kv.keys", "content = parent + int32_bytes(token_ids)", "content = int32_bytes(token_ids)"
    ),
    "a request without a domain shares": Patch(
        "intake", "request.domain if config.prefix_reuse else None", 'request.domain or b""'
    ),
    "prefix reuse can't be switched off": Patch(
        "intake", "request.domain if config.prefix_reuse else None", "request.domain"
    ),
    "all known tokens are looked up": Patch(
        "kv.cache", "limit // size)\n        path", "-(-limit // size))\n        path"
    ),
    "a partial match goes beyond the limit": Patch(
        "kv.cache", "min((count + 1) * size, limit)", "(count + 1) * size"
    ),
    "a partial match is one token too long": Patch(
        "kv.cache",
        "num_partial_tokens=num_partial",
        "num_partial_tokens=num_partial + (num_partial > 0)",
    ),
    "a block that is not complete is published": Patch(
        "kv.cache", "num_blocks = num_computed // size", "num_blocks = -(-num_computed // size)"
    ),
    "published blocks get no reference": Patch(
        "kv.cache", "        self.pool.share([node.block for node in added])\n", ""
    ),
    "a hit takes no references": Patch(
        "kv.cache", "        self.pool.share(blocks)\n        for", "        for"
    ),
    "a block that is taken stays idle": Patch(
        "kv.cache",
        "            self._idle.pop(block, None)\n\n    def share",
        "            pass\n\n    def share",
    ),
    "what was used last is evicted first": Patch(
        "kv.cache",
        "evicted += self._drop(next(iter(self._idle.values())))",
        "evicted += self._drop(next(reversed(self._idle.values())))",
    ),
    "blocks that others build on are evicted first": Patch(
        "kv.cache", "                self._idle.move_to_end(each.block)\n", ""
    ),
    "evicted blocks can still be found": Patch(
        "kv.prefix_index",
        "del self.nodes[node.key], self.by_block[node.block]",
        "del self.by_block[node.block]",
    ),
    "what builds on an evicted block can still be found": Patch(
        "kv.prefix_index",
        "            removed.extend(each.children.values())\n",
        "            pass\n",
    ),
    "an evicted node is believed by those who found it": Patch(
        "kv.prefix_index", "            node.is_indexed = False\n", ""
    ),
    "those in flight publish what was erased": Patch(
        "engine", "                    sequence.chain.close()\n", "                    pass\n"
    ),
    "a failed step leaves the cache": Patch("scheduler", "        self.cache.clear()\n", ""),
    "nobody is told of evictions": Patch("kv.cache", "        self._tell_removed(evicted)\n", ""),
    "blocks are told without their parent": Patch(
        "kv.events", "parent=None if parent is None else parent.key", "parent=run[0].key"
    ),
    "cached blocks live one look longer than their time": Patch(
        "kv.cache", "last_use_s <= used_until_s", "last_use_s < used_until_s - 1e9"
    ),
}

CACHE_BUGS = POOL | CACHE
