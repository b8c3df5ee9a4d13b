"""The arithmetic of the scripted engine, without batches, blocks or steps: what it must compute.

Every token leaves an entry that depends on its id, its position and all earlier entries; the next
token's logits are a function of the weighted sum of all entries, the digest. An entry lost, stale, moved
or repeated changes all that follows. Each KV group starts from a digest of its own.
"""

from collections.abc import Iterable

MASK = 2**64 - 1
"""All arithmetic is modulo 2^64."""
ODD = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7)
"""Multipliers; odd, so that multiplying loses nothing."""


def entry_of(token_id: int, position: int, digest: int) -> int:
    """Give the entry that a token leaves after the entries of `digest`: 63 bits, never negative."""
    mixed = (digest ^ (token_id + 1) * ODD[0] ^ position * ODD[1]) & MASK
    mixed = (mixed ^ mixed >> 31) * ODD[2] & MASK
    return mixed >> 1


def digest_of(token_ids: Iterable[int], group: int) -> int:
    """Give the digest of a whole sequence in one KV group."""
    digest = group + 1
    for position, token_id in enumerate(token_ids):
        digest += entry_of(token_id, position, digest) * (2 * position + 1)
        digest &= MASK
    return digest


def logits_of(digest: int, vocab_size: int) -> list[float]:
    """Give the logits after `digest`: sixteenths from 0 to 16, so that ties are common."""
    mixed = [(digest ^ (token_id + 1) * ODD[1]) & MASK for token_id in range(vocab_size)]
    mixed = [(value ^ value >> 31) * ODD[0] & MASK for value in mixed]
    return [(value >> 56) / 16 for value in mixed]


def next_logits(token_ids: Iterable[int], *, vocab_size: int, num_groups: int = 1) -> list[float]:
    """Give the logits of the token after a whole sequence, summed over the groups' digests."""
    known = tuple(token_ids)
    digest = sum(digest_of(known, group) for group in range(num_groups)) & MASK
    return logits_of(digest, vocab_size)
