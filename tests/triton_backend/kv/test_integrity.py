"""The integrity check: each way to break a cache is seen, and named."""

from collections.abc import Callable

import pytest

from builder.errors import EngineError
from tests.triton_backend.kv.ledger import Ledger, ids
from triton_backend.kv.cache import BlockCache
from triton_backend.kv.node import Node

A = b"a"


def cache_with(*lengths: int) -> BlockCache:
    ledger = Ledger()
    for first, length in enumerate(lengths):
        ledger.serve(A, *range(first * 100, first * 100 + length))
    return ledger.cache


def chain_of(cache: BlockCache) -> list[Node]:
    """The nodes of the first prompt."""
    node = next(iter(cache._index.roots[A].values()))
    nodes = [node]
    while node.children:
        (node,) = node.children.values()
        nodes.append(node)
    return nodes


def lose_a_key(cache: BlockCache) -> None:
    node = chain_of(cache)[1]
    del cache._index.nodes[node.key]
    cache.pool.release([node.block])


def swap_keys(cache: BlockCache) -> None:
    first, second = chain_of(cache)[:2]
    first.key, second.key = second.key, first.key


def swap_blocks(cache: BlockCache) -> None:
    by_block = cache._index.by_block
    first, second = by_block
    by_block[first], by_block[second] = by_block[second], by_block[first]


def orphan(cache: BlockCache) -> None:
    chain_of(cache)[1].parent = None


def cut_off(cache: BlockCache) -> None:
    chain_of(cache)[0].children.clear()


def tie_a_loop(cache: BlockCache) -> None:
    first, second = chain_of(cache)[:2]
    second.children[first.key] = first


def bury(cache: BlockCache) -> None:
    chain_of(cache)[1].is_indexed = False


def change_sides(cache: BlockCache) -> None:
    chain_of(cache)[1].domain = b"b"


def move_a_root(cache: BlockCache) -> None:
    cache._index.roots[b"b"] = cache._index.roots.pop(A)


def forget_an_idle_block(cache: BlockCache) -> None:
    cache._idle.popitem()


def call_a_free_block_idle(cache: BlockCache) -> None:
    cache._idle[19] = chain_of(cache)[0]


def put_a_prefix_first(cache: BlockCache) -> None:
    cache._idle.move_to_end(chain_of(cache)[0].block, last=False)


def lose_a_reference(cache: BlockCache) -> None:
    cache.pool.release([chain_of(cache)[0].block])


BREACHES: list[tuple[Callable[[BlockCache], None], str]] = [
    (lose_a_key, "is not found by its key"),
    (swap_keys, "is not found by its key"),
    (swap_blocks, "is not found by its number"),
    (orphan, "has another parent"),
    (cut_off, "1 nodes reached, 2 by key, 2 by block"),
    (tie_a_loop, "block 2 has another parent|block 1 has another parent"),
    (bury, "counts as removed"),
    (change_sides, "follows a foreign domain"),
    (move_a_root, "begins a foreign domain"),
    (forget_an_idle_block, "1 blocks idle, 2 held by nobody, 1 are both"),
    (call_a_free_block_idle, "3 blocks idle, 2 held by nobody, 2 are both"),
    (put_a_prefix_first, "is evicted before .* which builds on it"),
    (lose_a_reference, "KV pool broken at block"),
]


@pytest.mark.parametrize(("breach", "message"), BREACHES, ids=[b.__name__ for b, _ in BREACHES])
def test_a_breach_is_named(breach: Callable[[BlockCache], None], message: str) -> None:
    cache = cache_with(10)
    cache.check_integrity([])
    breach(cache)
    with pytest.raises(EngineError, match=message):
        cache.check_integrity([])


def test_a_block_published_twice_is_an_error_of_ours() -> None:
    cache = cache_with(10)
    node = chain_of(cache)[0]
    with pytest.raises(AssertionError):
        cache._index.add(b"other", None, domain=A, token_ids=ids(1, 2, 3, 4), block=node.block)
    with pytest.raises(AssertionError):
        cache._index.add(node.key, None, domain=A, token_ids=ids(1, 2, 3, 4), block=19)


def test_held_and_idle_blocks_of_one_prompt_are_whole() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(13))
    assert ledger.start(A, range(5)) is not None
    ledger.check()
