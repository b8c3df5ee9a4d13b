"""What a model is and what an engine was compiled for, as plain frozen data.

Letters in shapes: L layers, H query heads, K kv heads, D head size, V vocabulary, G KV groups, N blocks.
These nouns know nothing of files, graphs or targets; they are what a manifest stores.
"""

from dataclasses import dataclass

ELEMENT_BYTES = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int8": 1,
    "int8-static": 1,
    "fp8": 1,
    "int64": 8,
}
"""Bytes of one number, by the name of its type."""
SCALE_BYTES = {"int8": 4}
"""Bytes of the scale that a token's keys, or values, of one head have in quantized KV."""
FIXED_SCALES = ("fp8", "int8-static")
"""Precisions of keys and values that have one fixed scale per layer instead, which came with the model."""


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: frequency i is `theta ** (-2i / D)`, then scaled by kind."""

    theta: float
    kind: str = "default"
    """`default`, `linear`, `llama3`, or `factors` (one divisor per frequency, as GGUF stores llama3)."""
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_positions: int = 0
    factors: tuple[float, ...] = ()
    """`[D / 2]` divisors of the frequencies; only for kind `factors`."""


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The sizes and switches of a decoder that change its graph."""

    arch: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    norm_eps: float
    activation: str
    rope: RopeConfig
    max_positions: int
    tied_head: bool
    """The output head is the embedding table, transposed."""
    attention_bias: bool = False
    mlp_bias: bool = False


@dataclass(frozen=True, slots=True)
class KVGroup:
    """Layers whose KV blocks have one shape and one life, and so share a pool."""

    layers: tuple[int, ...]
    num_kv_heads: int
    head_dim: int
    """Numbers of a key, or of a value, as the pool holds them: the model's, or more where a target pads them."""
    dtype: str
    """Stored precision of keys and values, such as `float32`."""
    window: int | None = None
    """Sliding window in tokens, or None for all earlier tokens."""
    key_scales: tuple[float, ...] = ()
    """Of a precision of FIXED_SCALES: the scale of the keys of each of `layers`."""
    value_scales: tuple[float, ...] = ()

    @property
    def bytes_per_token(self) -> int:
        """Bytes of keys and values that one token holds in all layers of the group."""
        head = self.head_dim * ELEMENT_BYTES[self.dtype] + SCALE_BYTES.get(self.dtype, 0)
        return 2 * len(self.layers) * self.num_kv_heads * head


@dataclass(frozen=True, slots=True)
class KVGeometry:
    """How KV memory is cut: block size in tokens, and the groups."""

    block_size: int
    groups: tuple[KVGroup, ...]

    @property
    def bytes_per_token(self) -> int:
        """Bytes of KV memory that one token holds, over all groups."""
        return sum(group.bytes_per_token for group in self.groups)

    @property
    def bytes_per_block(self) -> int:
        """Bytes of KV memory of one block of every group."""
        return self.bytes_per_token * self.block_size


@dataclass(frozen=True, slots=True)
class Limits:
    """What an engine was compiled for. A step or a sequence beyond them is refused, never cut."""

    max_seq_len: int
    """Tokens of prompt and answer together."""
    max_num_seqs: int
    """S: sequences in one step."""
    max_num_tokens: int
    """T: tokens in one step (the token budget)."""
    max_logit_rows: int
    """J: rows whose logits one step may ask for."""
    num_blocks: int
    """N: blocks in each KV pool, block 0 (reserved for padding) included."""
