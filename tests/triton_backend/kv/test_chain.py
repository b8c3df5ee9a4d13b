"""Chains: keys of complete blocks, forked where common blocks end."""

from tests.triton_backend.kv.ledger import common_of, ids
from triton_backend.kv.chain import Chain
from triton_backend.kv.keys import COMMON, child_key, fork_key, root_key

TOKENS = ids(1, 2, 3, 4, 5, 6, 7)
ROOT = root_key(b"a")


def keys(chain: Chain, count: int) -> list[bytes]:
    return [chain.key(index, TOKENS) for index in range(count)]


def test_each_key_is_chained_from_the_one_before() -> None:
    first = child_key(ROOT, ids(1, 2))
    second = child_key(first, ids(3, 4))
    assert keys(Chain(b"a", 2), 3) == [first, second, child_key(second, ids(5, 6))]


def test_a_later_key_can_be_asked_for_first() -> None:
    chain = Chain(b"a", 2)
    assert chain.key(2, TOKENS) == keys(Chain(b"a", 2), 3)[2]
    assert keys(chain, 3) == keys(Chain(b"a", 2), 3)


def test_keys_once_given_stay_when_tokens_are_appended() -> None:
    chain = Chain(b"a", 2)
    first = chain.key(0, ids(1, 2))
    assert keys(chain, 2) == [first, child_key(first, ids(3, 4))]


def test_two_domains_have_no_key_in_common() -> None:
    assert not set(keys(Chain(b"a", 2), 3)) & set(keys(Chain(b"b", 2), 3))


def test_full_blocks_of_a_common_prefix_have_the_same_keys_in_all_domains() -> None:
    common = common_of([1, 2, 3, 4, 5])
    mine, yours = (Chain(domain, 2, common) for domain in (b"a", b"b"))
    first = child_key(root_key(COMMON), ids(1, 2))
    second = child_key(first, ids(3, 4))
    assert keys(mine, 3) == [first, second, child_key(fork_key(second, b"a"), ids(5, 6))]
    assert keys(yours, 2) == [first, second]
    assert yours.key(2, TOKENS) == child_key(fork_key(second, b"b"), ids(5, 6))
    assert [mine.owner(index, TOKENS) for index in range(3)] == [COMMON, COMMON, b"a"]


def test_a_common_prefix_shorter_than_a_block_shares_nothing() -> None:
    assert keys(Chain(b"a", 2, common_of([1])), 3) == keys(Chain(b"a", 2), 3)


def test_a_common_prefix_that_is_completed_later_does_not_change_keys() -> None:
    chain = Chain(b"a", 2, common_of([1, 2, 3, 4]))
    chain.key(0, ids(1, 2))
    assert keys(chain, 3) == keys(Chain(b"a", 2), 3)
    assert [chain.owner(index, TOKENS) for index in range(3)] == [b"a", b"a", b"a"]


def test_nothing_of_an_unshared_or_closed_chain_is_shared() -> None:
    chain = Chain(b"a", 2)
    assert chain.is_shared
    assert Chain(b"", 2).is_shared
    chain.close()
    assert not chain.is_shared
    assert not Chain(None, 2).is_shared
