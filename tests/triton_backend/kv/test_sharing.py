"""Whose blocks are found by whom: domains never share, but for common prefixes, and can be erased."""

from tests.triton_backend.kv.ledger import Ledger, ids
from triton_backend.kv.hit import NO_HIT

A, B = b"a", b"b"
PROMPT = tuple(range(10))


def test_another_domain_finds_nothing_not_even_in_part() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    for domain in (B, b"", None):
        assert ledger.find(domain, *PROMPT, 11, 12) == NO_HIT


def test_without_a_domain_nothing_is_left_behind() -> None:
    ledger = Ledger()
    ledger.serve(None, *PROMPT)
    assert ledger.cache.num_cached == 0
    assert ledger.find(None, *PROMPT) == NO_HIT
    assert ledger.cache.match(ledger.cache.new_chain(None), ids(*PROMPT), 9) == 0


def test_common_prefixes_are_shared_and_what_follows_is_not() -> None:
    ledger = Ledger(common=[range(6)])
    ledger.serve(A, *PROMPT)
    assert ledger.find(A, *PROMPT).num_reused == 8
    assert ledger.find(B, *PROMPT).num_reused == 4
    ledger.serve(B, *PROMPT)
    ledger.check()
    assert ledger.cache.num_cached == 3


def test_a_prompt_that_only_begins_like_a_common_prefix_shares_nothing() -> None:
    ledger = Ledger(common=[range(6)])
    ledger.serve(A, 0, 1, 2, 3, 4, 99)
    assert ledger.find(B, *PROMPT) == NO_HIT
    assert ledger.find(B, 0, 1, 2, 3, 4, 99) == NO_HIT


def test_an_erased_domain_is_not_found_and_others_are() -> None:
    ledger = Ledger()
    ledger.serve(A, *PROMPT)
    ledger.serve(B, *PROMPT)
    assert ledger.cache.erase(A) == 2
    assert ledger.find(A, *PROMPT) == NO_HIT
    assert ledger.find(B, *PROMPT).num_tokens == 8
    assert ledger.cache.erase(A) == 0
    ledger.check()


def test_of_domains_that_are_gone_nothing_is_left_in_memory() -> None:
    ledger = Ledger(num_blocks=4)
    for name in range(50):
        ledger.serve(bytes([name]), *range(8))
    index = ledger.cache._index
    assert len(index.roots) == 2
    for name in (48, 49):
        ledger.cache.erase(bytes([name]))
    assert not index.roots
    assert not index.nodes
    assert not index.by_block


def test_erasing_what_is_held_leaves_it_to_its_holder_alone() -> None:
    ledger = Ledger()
    player = ledger.start(A, PROMPT)
    assert player is not None
    ledger.compute(player)
    player.chain.close()
    assert ledger.cache.erase(A) == 2
    ledger.check()
    ledger.grow(player, 10)
    ledger.grow(player, 11)
    ledger.compute(player)
    assert ledger.cache.num_cached == 0
    ledger.stop(player)
    assert ledger.cache.pool.num_used == 0


def test_erasing_a_domain_leaves_what_is_common() -> None:
    ledger = Ledger(common=[range(4)])
    ledger.serve(A, *PROMPT)
    assert ledger.cache.erase(A) == 1
    assert ledger.find(B, *PROMPT).num_tokens == 4
