"""The contract of PagedAttention, the same for every target.

Letters: T tokens in a step, S sequences, B blocks per sequence, N blocks in the pool, H query heads,
K kv heads, D head size, `block` tokens per block. A slot is `block_id * block + offset`.

The operation first writes key and value of every token to its slot, then lets each query attend to the
entries of its own sequence at positions up to its own, read back from the cache in stored precision.
Query head h reads kv head `h // (H / K)`. A variant (such as sinks) is added here together with its reference,
when an architecture needs it. A target may keep the cache in fewer bits; int8 has a scale per token and head. With fixed
scales, one for the keys and one for the values of a layer, a number is x / scale rounded half to even, as E4M3, which
saturates at 448, or as int8, which saturates at 127 either way; a NaN or an infinity is kept as NaN, in int8 as -128. Scores
are taken of the stored numbers and of queries times the key scale; the value scale multiplies the result.
"""

from dataclasses import dataclass

DOMAIN = "forerun"
NAME = "PagedAttention"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Operand:
    """One input or output: its name, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    meaning: str


INPUTS = (
    Operand("query", "float", ("T", "H", "D"), "after rotary embedding"),
    Operand("key", "float", ("T", "K", "D"), "after rotary embedding"),
    Operand("value", "float", ("T", "K", "D"), ""),
    Operand("cache", "float", ("N", 2, "K", "block", "D"), "this layer's keys (0) and values (1)"),
    Operand("slot_mapping", "int32", ("T",), "slot each token is written to; no two are equal"),
    Operand(
        "query_start", "int32", ("S+1",), "tokens of sequence s: query_start[s]..query_start[s+1]"
    ),
    Operand("seq_lens", "int32", ("S",), "length of each sequence, this step's tokens included"),
    Operand("block_tables", "int32", ("S", "B"), "blocks of each sequence in order, padded with 0"),
)
OUTPUTS = (
    Operand("attention", "float", ("T", "H", "D"), ""),
    Operand(
        "cache_out", "float", ("N", 2, "K", "block", "D"), "the cache, updated; aliased in place"
    ),
)
ATTRIBUTES = {
    "scale": "factor of the dot products, usually D ** -0.5",
    "window": "entries that a query sees, its own included; 0, or absent: all up to its own",
    "soft_cap": "scores become soft_cap * tanh(score / soft_cap); 0, or absent: they stay",
}
