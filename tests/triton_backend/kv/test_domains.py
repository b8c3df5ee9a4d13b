"""Domains: nobody can name another's, a salt only narrows, and common prefixes are known by digest."""

import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builder.errors import UserError
from tests.triton_backend.kv.ledger import common_of, ids
from triton_backend.kv.domains import (
    NO_COMMON,
    CommonPrefixes,
    derive_domain,
    prefix_digest,
)
from triton_backend.request import MAX_DOMAIN_BYTES

SECRET = b"0123456789abcdef"


def test_a_domain_is_an_hmac_of_the_identity_under_the_secret() -> None:
    content = b"\2\0\0\0\0\0\0\0mesalt"
    expected = hmac.new(SECRET, content, hashlib.sha256).digest()
    assert derive_domain(SECRET, "me", "salt") == expected
    assert len(expected) <= MAX_DOMAIN_BYTES


def test_another_secret_gives_another_domain() -> None:
    assert derive_domain(SECRET, "me") != derive_domain(SECRET + b"!", "me")


@given(st.tuples(st.text(max_size=6), st.text(max_size=6)), st.text(max_size=12))
def test_no_salt_leads_into_the_domain_of_another(mine: tuple[str, str], other: str) -> None:
    if mine[0] != other:
        assert derive_domain(SECRET, *mine) != derive_domain(SECRET, other)
        assert derive_domain(SECRET, *mine) != derive_domain(SECRET, other, mine[1])


def test_moving_letters_from_identity_to_salt_gives_another_domain() -> None:
    domains = {derive_domain(SECRET, "ab", "c"), derive_domain(SECRET, "a", "bc")}
    domains |= {derive_domain(SECRET, "abc"), derive_domain(SECRET, "", "abc")}
    assert len(domains) == 4


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(UserError, match="at least 16 bytes; got 15"):
        derive_domain(SECRET[:15], "me")


def test_a_prefix_is_named_by_the_sha256_of_its_little_endian_ids() -> None:
    assert prefix_digest([1, 256]) == hashlib.sha256(b"\1\0\0\0\0\1\0\0").hexdigest()


def test_the_longest_common_prefix_counts() -> None:
    common = common_of([1, 2], [1, 2, 3, 4], [1, 2, 9], [5])
    assert common.longest(ids(1, 2, 3, 4, 5)) == 4
    assert common.longest(ids(1, 2, 3, 4)) == 4
    assert common.longest(ids(1, 2, 3)) == 2
    assert common.longest(ids(1, 2, 9, 4)) == 3
    assert common.longest(ids(5, 5)) == 1
    assert common.longest(ids(2, 1)) == common.longest(ids()) == 0


def test_nothing_is_common_by_default() -> None:
    assert NO_COMMON.longest(ids(1, 2, 3)) == 0


def test_digests_may_be_written_in_capitals() -> None:
    assert CommonPrefixes([(2, prefix_digest([1, 2]).upper())]).longest(ids(1, 2)) == 2


@pytest.mark.parametrize(
    ("num_tokens", "digest", "message"),
    [
        (0, "0" * 64, "at least 1 token; got 0"),
        (3, "0" * 63, "of 3 tokens must be 64 hexadecimal digits"),
        (3, "g" * 64, "of 3 tokens must be 64 hexadecimal digits"),
    ],
)
def test_what_is_no_digest_is_refused(num_tokens: int, digest: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        CommonPrefixes([(num_tokens, digest)])
