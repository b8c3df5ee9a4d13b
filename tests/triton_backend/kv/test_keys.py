"""Keys name a block's tokens, all before them and whose they are; the same in every process."""

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triton_backend.kv.ledger import ids
from triton_backend.kv.keys import (
    COMMON,
    child_key,
    fork_key,
    int32_bytes,
    root_key,
)
from triton_backend.request import Request

INT32S = st.integers(-(2**31), 2**31 - 1)


def test_a_key_is_the_published_hash_and_not_pythons_own() -> None:
    root = blake2b(b"a", digest_size=16, person=b"forerun root").digest()
    assert root_key(b"a") == root
    content = root + b"\1\0\0\0\0\1\0\0"
    assert child_key(root, ids(1, 256)) == (
        blake2b(content, digest_size=16, person=b"forerun block").digest()
    )


def test_keys_have_128_bits() -> None:
    root = root_key(b"")
    assert {len(root), len(child_key(root, ids(1))), len(fork_key(root, b""))} == {16}


def test_each_of_parent_tokens_and_their_order_changes_a_key() -> None:
    root = root_key(b"")
    keys = [
        child_key(root, ids(1, 2)),
        child_key(root, ids(2, 1)),
        child_key(root, ids(1, 2, 0)),
        child_key(root_key(b"\0"), ids(1, 2)),
        child_key(child_key(root, ids(1, 2)), ids(1, 2)),
    ]
    assert len(set(keys)) == len(keys)


def test_root_block_and_fork_keys_of_the_same_bytes_differ() -> None:
    parent = bytes(16)
    assert len({root_key(parent), child_key(parent, ids()), fork_key(parent, b"")}) == 3


def test_no_request_can_have_the_domain_of_all() -> None:
    longest = bytes(64)
    assert Request("a", (1,), domain=longest).domain == longest
    assert len(COMMON) > len(longest)
    assert root_key(COMMON) != root_key(longest)


@given(st.lists(INT32S, max_size=8))
def test_ids_are_hashed_as_little_endian_int32(tokens: list[int]) -> None:
    expected = b"".join(token.to_bytes(4, "little", signed=True) for token in tokens)
    assert int32_bytes(tokens) == int32_bytes(ids(*tokens)) == expected


def test_a_big_endian_machine_has_the_same_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    stored_by_it = ids(1 << 24, 2 << 24)
    monkeypatch.setattr("sys.byteorder", "big")
    assert int32_bytes(stored_by_it) == b"\1\0\0\0\2\0\0\0"
    assert stored_by_it == ids(1 << 24, 2 << 24)
