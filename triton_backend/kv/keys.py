"""Keys of blocks: 128 bits that name a block's tokens, all tokens before them, and whose they are.

A key is chained from the key of the block before. It is never believed alone: who finds a block by its
key compares tokens. Python's own hash takes no part, so keys are the same in every process.
"""

import sys
from array import array
from collections.abc import Iterable
from hashlib import blake2b

from triton_backend.request import MAX_DOMAIN_BYTES

KEY_BYTES = 16

COMMON = bytes(MAX_DOMAIN_BYTES + 1)
"""The domain of blocks that everybody may use: longer than any domain a request can have."""


def root_key(domain: bytes) -> bytes:
    """Give the key that the first block of a domain is chained from."""
    return blake2b(domain, digest_size=KEY_BYTES, person=b"forerun root").digest()


def child_key(parent: bytes, token_ids: "array[int]") -> bytes:
    """Give the key of a block of tokens that comes after the block with the key `parent`."""
    content = parent + int32_bytes(token_ids)
    return blake2b(content, digest_size=KEY_BYTES, person=b"forerun block").digest()


def fork_key(last_common: bytes, domain: bytes) -> bytes:
    """Give the key that a domain's first own block after common ones is chained from."""
    content = last_common + domain
    return blake2b(content, digest_size=KEY_BYTES, person=b"forerun fork").digest()


def int32_bytes(token_ids: Iterable[int]) -> bytes:
    """Write token ids as little-endian 32-bit integers, the form in which they are hashed."""
    run = array("i", token_ids)
    if sys.byteorder == "big":
        run.byteswap()
    return run.tobytes()
