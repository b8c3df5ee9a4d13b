"""Random numbers by name: one fixed number for each (seed, choice, position).

A counter-based stream has no state to lose: preemption, batching and restarts can't shift it, and each
choice of a request has a stream of its own.
"""

from hashlib import blake2b

_SEED_BYTES = 16


def uniform(seed: int, choice: int, position: int) -> float:
    """Give the number in `[0, 1)`, a multiple of 2^-53, for the token at an absolute position.

    `seed` is any integer of 128 bits with sign.
    """
    key = seed.to_bytes(_SEED_BYTES, "little", signed=True)
    counter = choice.to_bytes(8, "little") + position.to_bytes(8, "little")
    digest = blake2b(counter, key=key, digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53
