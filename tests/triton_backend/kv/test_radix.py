"""The radix view: runs of blocks, who holds them, and a text that shows no token."""

import sys

from tests.triton_backend.kv.ledger import Ledger, ids
from triton_backend.kv.pool import BlockPool
from triton_backend.kv.prefix_index import PrefixIndex
from triton_backend.kv.radix import RadixRun, radix_text, radix_view

A, B = b"aaaaaa", b"b"


def shape(tree: list[RadixRun]) -> list[tuple[int, int, int]]:
    return [(run.depth, len(run.blocks), run.num_holders) for run in tree]


def test_an_empty_cache_has_an_empty_tree() -> None:
    assert Ledger().cache.view() == []
    assert radix_text([]) == ""


def test_a_prompt_is_one_run() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(13))
    (run,) = ledger.cache.view()
    assert (run.depth, run.domain, run.num_tokens, run.num_holders) == (0, A, 12, 0)
    assert run.blocks == ledger.find(A, *range(13)).blocks


def test_runs_end_where_prompts_part() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(13))
    ledger.serve(A, *range(8), *range(50, 59))
    assert shape(ledger.cache.view()) == [(0, 2, 0), (1, 1, 0), (1, 2, 0)]


def test_runs_end_where_the_holders_change() -> None:
    ledger = Ledger()
    ledger.serve(A, *range(13))
    players = [ledger.start(A, range(5)), ledger.start(A, range(9))]
    assert None not in players
    assert shape(ledger.cache.view()) == [(0, 1, 2), (1, 1, 1), (2, 1, 0)]


def test_runs_end_where_common_blocks_end_and_trees_come_in_order() -> None:
    ledger = Ledger(common=[range(4)])
    ledger.serve(A, *range(100, 105))
    ledger.serve(A, *range(9))
    ledger.serve(B, *range(9))
    tree = ledger.cache.view()
    assert shape(tree) == [(0, 1, 0), (0, 1, 0), (1, 1, 0), (1, 1, 0)]
    assert [run.domain for run in tree][::2] == [A, A]


def test_a_very_deep_tree_can_be_looked_at() -> None:
    index, pool, depth = PrefixIndex(1), BlockPool(5000, 1), sys.getrecursionlimit() + 10
    node = None
    for token in range(depth):
        parent = node
        for last in (b"0", b"1"):
            (block,) = pool.allocate(1)
            key = token.to_bytes(2, "big") + last
            node = index.add(key, parent, domain=A, token_ids=ids(token), block=block)
    tree = radix_view(index, pool)
    assert max(run.depth for run in tree) == depth - 1
    assert len(index.remove(next(iter(index.roots[A].values())))) == 1
    assert len(index.remove(next(iter(index.roots[A].values())))) == 2 * depth - 1


def test_the_text_shows_counts_and_no_token() -> None:
    ledger = Ledger(common=[[70001, 70002, 70003, 70004]])
    ledger.serve(A, 70001, 70002, 70003, 70004, *range(80000, 80009))
    ledger.serve(b"", *range(90000, 90005))
    text = radix_text(ledger.cache.view())
    keys = [run.key.hex()[:8] for run in ledger.cache.view()]
    assert text.splitlines() == [
        f"{keys[0]} common: 1 blocks, 4 tokens, held by 0",
        f"  {keys[1]} domain 61616161: 2 blocks, 8 tokens, held by 0",
        f"{keys[2]} domain (default): 1 blocks, 4 tokens, held by 0",
    ]
