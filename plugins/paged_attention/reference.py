"""PagedAttention in plain numpy, token by token: slow, obvious, and the judge of every kernel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.floating[Any]]
Int32 = NDArray[np.int32]


def round_to_int8(heads: Float) -> Float:
    """Give values `[..., D]` as the int8 cache keeps them: whole multiples of max |x| / 127 per head."""
    peak = np.abs(heads).max(axis=-1, keepdims=True).astype(np.float32)
    steps = np.rint(heads.astype(np.float32) / np.where(peak > 0, peak, 1) * np.float32(127))
    rounded: Float = steps.astype(np.float64) * (peak / np.float32(127))
    return rounded


def round_keys_to_int8(keys: Float) -> Float:
    """Give keys `[..., D]` as the int8 cache keeps them, rounded behind an orthogonal transform, transformed back.

    The transform is a Hadamard matrix per block of D, which is padded to a multiple of 16 (`plugins/native/hadamard.h`);
    queries go through it too, so that scores stay what they were (QuaRot, arXiv:2404.00456).
    """
    size = keys.shape[-1]
    width = -(-size // 16) * 16
    padded = np.zeros((*keys.shape[:-1], width))
    padded[..., :size] = keys
    block = min(width & -width, 256)
    matrix = np.ones((1, 1))
    while len(matrix) < block:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    spread = padded.reshape(*keys.shape[:-1], -1, block) @ matrix
    rounded = round_to_int8(spread.reshape(padded.shape)).reshape(spread.shape)
    back: Float = (rounded @ matrix / block).reshape(padded.shape)[..., :size]
    return back


def round_to_fp8(heads: Float, scale: float) -> Float:
    """Give values `[..., D]` as a cache of E4M3 with a fixed scale keeps them."""
    size = _steps(heads, scale)
    _, exponents = np.frexp(size)  # of 2**e with a fraction from 1/2 on
    unit = np.ldexp(
        1.0, np.maximum(exponents - 1, -6) - 3
    )  # 3 bits behind the leading one, down to 2**-6
    return _restored(heads, np.minimum(np.rint(size / unit) * unit, 448), scale)


def round_to_int8_static(heads: Float, scale: float) -> Float:
    """Give values `[..., D]` as a cache of int8 with a fixed scale keeps them."""
    size = _steps(heads, scale)
    return _restored(heads, np.minimum(np.rint(size), 127), scale)


def _steps(heads: Float, scale: float) -> Float:
    """Give |x / scale| as float32 has it; what is no number stays out of it."""
    clean = np.where(np.isfinite(heads), heads, 0).astype(np.float32)
    with np.errstate(over="ignore"):  # what does not fit saturates
        steps: Float = np.minimum(np.abs(clean / np.float32(scale)), np.float32(1e6))
    return steps


def _restored(heads: Float, numbers: Float, scale: float) -> Float:
    restored: Float = np.copysign(numbers.astype(np.float64) * np.float32(scale), heads)
    return np.where(np.isfinite(heads), restored, np.nan)


def weigh(scores: Float, *, soft_cap: float = 0.0) -> Float:
    """Turn scores `[..., keys]` into weights; a hidden one is minus infinity."""
    if soft_cap:
        capped = np.tanh(np.where(np.isfinite(scores), scores, 0) / soft_cap) * soft_cap
        scores = np.where(np.isfinite(scores), capped, scores)
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    weights: Float = raised / raised.sum(axis=-1, keepdims=True)
    return weights


def paged_attention(  # noqa: PLR0913 - the operation has eight operands
    query: Float,
    key: Float,
    value: Float,
    *,
    cache: Float,
    slot_mapping: Int32,
    query_start: Int32,
    seq_lens: Int32,
    block_tables: Int32,
    scale: float,
    window: int = 0,
    soft_cap: float = 0.0,
) -> Float:
    """Write keys and values into `cache` in place and give the attention `[T, H, D]` in float64.

    Shapes are those of `spec.INPUTS`.
    """
    block_size = cache.shape[3]
    for t, slot in enumerate(slot_mapping):
        cache[slot // block_size, 0, :, slot % block_size] = key[t]
        cache[slot // block_size, 1, :, slot % block_size] = value[t]
    group = query.shape[1] // key.shape[1]
    out = np.empty(query.shape, np.float64)
    for s, length in enumerate(seq_lens):
        position = np.arange(length)
        blocks = cache[block_tables[s, position // block_size]]
        entries = blocks[position, :, :, position % block_size].astype(np.float64)
        keys, values = np.repeat(entries, group, axis=2).transpose(1, 2, 0, 3)
        start, stop = query_start[s], query_start[s + 1]
        for t in range(start, stop):
            seen = length - (stop - t) + 1
            scores = np.einsum("hd,hld->hl", query[t].astype(np.float64), keys[:, :seen]) * scale
            scores[:, : max(0, seen - window) if window else 0] = -np.inf
            weights = weigh(scores, soft_cap=soft_cap)
            out[t] = np.einsum("hl,hld->hd", weights, values[:, :seen])
    return out
