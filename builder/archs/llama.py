"""The Llama family: Llama 2 and 3, SmolLM2, and others of the same graph.

Pre-norm decoder: RMSNorm, rotary grouped-query attention, RMSNorm, SiLU-gated MLP; optional biases; the
head may be the embedding table.
"""

from typing import Any

from builder.archs.blocks import ACTIVATIONS, Blocks
from builder.archs.config_reader import ConfigReader, read_rope, write_rope
from builder.artifact.config import ModelConfig
from builder.errors import CheckpointError
from builder.graph.graph import Graph

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
MAX_LAYERS = 10_000


def read_config(reader: ConfigReader) -> ModelConfig:
    """Read config.json.

    Raises:
        CheckpointError: a field is missing or contradicts another.
        UnsupportedError: a field asks for something that is not implemented.
    """
    hidden_size, num_heads = reader.size("hidden_size"), reader.size("num_attention_heads")
    if reader.get("head_dim") is None and hidden_size % num_heads:
        raise CheckpointError(
            f"config.json: hidden_size {hidden_size} is not a multiple of num_attention_heads {num_heads}"
        )
    head_dim = reader.size("head_dim", hidden_size // num_heads)
    num_kv_heads = reader.size("num_key_value_heads", num_heads)
    if num_heads % num_kv_heads:
        raise CheckpointError(
            f"config.json: num_attention_heads {num_heads} is not a multiple of num_key_value_heads {num_kv_heads}"
        )
    if head_dim % 2:
        raise CheckpointError(
            f"config.json: head_dim {head_dim} is odd; rotary embedding needs pairs"
        )
    max_positions = reader.size("max_position_embeddings", 2048)
    if max_positions < 2:
        raise CheckpointError(
            "config.json: max_position_embeddings is 1; an answer needs at least 2"
        )
    reader.require("pretraining_tp", 1)
    reader.require("rope_interleaved", False)
    reader.require("partial_rotary_factor", 1, 1.0)
    reader.require("sliding_window")
    return ModelConfig(
        arch="llama",
        vocab_size=reader.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=reader.size("intermediate_size"),
        num_layers=reader.size("num_hidden_layers", most=MAX_LAYERS),
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        norm_eps=reader.number("rms_norm_eps", 1e-6),
        activation=reader.choice("hidden_act", ACTIVATIONS, "silu"),
        rope=read_rope(reader, max_positions, head_dim),
        max_positions=max_positions,
        tied_head=reader.flag("tie_word_embeddings", default=False),
        attention_bias=reader.flag("attention_bias", default=False),
        mlp_bias=reader.flag("mlp_bias", default=False),
    )


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Give the fields of config.json that `read_config` makes the same of.

    Raises:
        UnsupportedError: a setting has no field that other programs know.
    """
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": config.activation,
        "max_position_embeddings": config.max_positions,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied_head,
        "attention_bias": config.attention_bias,
        "mlp_bias": config.mlp_bias,
        **write_rope(config.rope),
    }


def build(blocks: Blocks) -> Graph:
    """Build the graph from the checkpoint's tensors."""
    config = blocks.config
    activation = ACTIVATIONS[config.activation]
    hidden = blocks.embedding(EMBEDDING)
    for layer in range(config.num_layers):
        name = f"model.layers.{layer}"
        normed = blocks.rms_norm(hidden, f"{name}.input_layernorm")
        attended = blocks.attention(normed, layer, f"{name}.self_attn")
        hidden = blocks.emit("Add", hidden, attended)
        normed = blocks.rms_norm(hidden, f"{name}.post_attention_layernorm")
        hidden = blocks.emit("Add", hidden, blocks.gated_mlp(normed, f"{name}.mlp", activation))
    hidden = blocks.rms_norm(hidden, "model.norm")
    return blocks.finish(blocks.head(hidden, EMBEDDING if config.tied_head else HEAD))
