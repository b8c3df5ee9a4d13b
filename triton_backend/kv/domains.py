"""Whose blocks are whose: domains derived from the caller's identity, and prefixes common to all.

A domain comes from what the server knows of the caller and from a secret of the deployment, so nobody
can name another's. What a caller adds (a salt) makes a domain of its own inside the caller's.
"""

import hashlib
import hmac
from collections.abc import Iterable, Sequence

from builder.errors import UserError
from triton_backend.kv.keys import int32_bytes

MIN_SECRET_BYTES = 16


def derive_domain(secret: bytes, identity: str, salt: str = "") -> bytes:
    """Give the 32-byte domain of a caller; another identity or another salt gives another domain.

    Raises:
        UserError: the secret is too short to keep domains apart.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise UserError(
            f"the secret of domains must have at least {MIN_SECRET_BYTES} bytes; got {len(secret)}."
        )
    name = identity.encode()
    # The length goes first: else ("ab", "c") and ("a", "bc") would be the same caller.
    content = len(name).to_bytes(8, "little") + name + salt.encode()
    return hmac.digest(secret, content, "sha256")


def prefix_digest(token_ids: Iterable[int]) -> str:
    """Give the digest by which a common prefix is named: hex SHA-256 of its ids as little-endian int32."""
    return hashlib.sha256(int32_bytes(token_ids)).hexdigest()


class CommonPrefixes:
    """The token prefixes, known by digest alone, whose full blocks are shared by all domains."""

    def __init__(self, digests: Iterable[tuple[int, str]] = ()) -> None:
        """Take pairs of (number of tokens, `prefix_digest` of them).

        Raises:
            UserError: a number is below 1 or a digest is not 64 hexadecimal digits.
        """
        allowed: dict[int, set[str]] = {}
        for num_tokens, digest in digests:
            _check_prefix(num_tokens, digest)
            allowed.setdefault(num_tokens, set()).add(digest.lower())
        self._allowed = dict(sorted(allowed.items()))

    def longest(self, token_ids: Sequence[int]) -> int:
        """Count the tokens of the longest common prefix that `token_ids` begin with; 0 if there is none."""
        longest = start = 0
        hashed = hashlib.sha256()
        for num_tokens, digests in self._allowed.items():
            if num_tokens > len(token_ids):
                break
            hashed.update(int32_bytes(token_ids[start:num_tokens]))
            start = num_tokens
            if hashed.hexdigest() in digests:
                longest = num_tokens
        return longest


NO_COMMON = CommonPrefixes()


def _check_prefix(num_tokens: int, digest: str) -> None:
    if num_tokens < 1:
        raise UserError(f"a common prefix must have at least 1 token; got {num_tokens}.")
    if len(digest) != 64 or not set(digest.lower()) <= set("0123456789abcdef"):
        raise UserError(
            f"the digest of a common prefix of {num_tokens} tokens must be 64 hexadecimal digits."
        )
