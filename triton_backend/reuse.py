"""Finds KV that a waiting sequence need not compute: cached blocks, or those of another choice of its request."""

from triton_backend.kv.cache import BlockCache
from triton_backend.kv.hit import Hit
from triton_backend.sequence import Sequence


def find_hit(cache: BlockCache, sequence: Sequence) -> Hit | None:
    """Find the most that can be reused; None where it pays to wait for a choice that is computing the prompt."""
    running = [each for each in sequence.siblings if each.block_table]
    donors = [each for each in running if each.num_computed >= sequence.num_prompt]
    if running and not donors:
        return None
    cached = cache.lookup(sequence.chain, sequence.token_ids, sequence.first_row)
    if not donors:
        return cached
    shared = _prompt_of(donors[0], sequence, cache.pool.block_size)
    return max(cached, shared, key=lambda hit: hit.num_reused)


def _prompt_of(donor: Sequence, sequence: Sequence, block_size: int) -> Hit:
    """Give what can be reused of the prompt in a donor's blocks."""
    num_tokens = min(sequence.num_prompt, sequence.first_row)
    num_blocks, num_partial = divmod(num_tokens, block_size)
    return Hit(
        blocks=tuple(donor.block_table[:num_blocks]),
        num_tokens=num_blocks * block_size,
        partial_block=donor.block_table[num_blocks] if num_partial else None,
        num_partial_tokens=num_partial,
    )
