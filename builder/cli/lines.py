"""Lines that say in words what a model, its limits and its KV cache are."""

from builder.artifact.config import KVGeometry, KVGroup, Limits, ModelConfig
from builder.cli.sizes import format_bytes


def model_line(model: ModelConfig) -> str:
    """Describe the sizes of a model."""
    return (
        f"{model.arch}: {model.num_layers} layers, hidden {model.hidden_size}, "
        f"{model.num_heads} heads over {model.num_kv_heads} KV heads of {model.head_dim}, "
        f"vocabulary {model.vocab_size}"
    )


def limits_line(limits: Limits) -> str:
    """Describe what an engine is compiled for."""
    return (
        f"{limits.max_seq_len} tokens a sequence, {limits.max_num_seqs} sequences and "
        f"{limits.max_num_tokens} tokens a step"
    )


def kv_line(kv: KVGeometry, limits: Limits) -> str:
    """Describe the KV pools: block 0 is reserved, so they hold one block fewer than they take memory for."""
    dtypes = " and ".join(sorted({_kv_dtype(group) for group in kv.groups}))
    tokens = (limits.num_blocks - 1) * kv.block_size
    return (
        f"{dtypes}, {format_bytes(kv.bytes_per_token)} a token, {tokens} tokens in blocks of "
        f"{kv.block_size}, {format_bytes(limits.num_blocks * kv.bytes_per_block)} in all"
    )


def _kv_dtype(group: KVGroup) -> str:
    """Name the precision of a group, and how far its fixed scales reach over its layers."""
    if not group.key_scales:
        return group.dtype
    reach = [
        f"{name} x {min(scales):.3g} to {max(scales):.3g}"
        for name, scales in (("keys", group.key_scales), ("values", group.value_scales))
    ]
    return f"{group.dtype} with scales of {len(group.layers)} layers ({', '.join(reach)})"
