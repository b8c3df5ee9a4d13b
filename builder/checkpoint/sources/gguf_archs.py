"""What GGUF calls the parts of each architecture, as one table per architecture.

Metadata keys are written without the architecture's prefix, tensor names without `blk.<layer>.` and
without `.weight` or `.bias`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class GgufArch:
    """How to read one `general.architecture` of GGUF as a Hugging Face model."""

    config: Mapping[str, Any]
    """Fields of config.json that hold for every model of the architecture."""
    sizes: Mapping[str, str]
    """Metadata keys that must be there, to the config field that each becomes."""
    optional: Mapping[str, str]
    """The same for keys that may be absent; `read_config` knows what their absence means."""
    neutral: Mapping[str, tuple[Any, ...]]
    """Keys that are accepted only with a value that changes nothing."""
    tensors: Mapping[str, str]
    """Names outside of layers."""
    layer_tensors: Mapping[str, str]
    """Names inside a layer, after `blk.<layer>.`, to those after `model.layers.<layer>.`."""
    interleaved: Mapping[str, str] = field(default_factory=dict)
    """Layer tensors whose rows llama.cpp's converter reordered for interleaved rotary pairs, to the config
    field that counts their heads."""
    attention_biases: tuple[str, ...] = ()
    mlp_biases: tuple[str, ...] = ()
    """Layer tensors whose bias turns on the config's attention_bias or mlp_bias."""


LLAMA = GgufArch(
    config={"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu"},
    sizes={
        "block_count": "num_hidden_layers",
        "context_length": "max_position_embeddings",
        "embedding_length": "hidden_size",
        "feed_forward_length": "intermediate_size",
        "attention.head_count": "num_attention_heads",
        "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    },
    optional={
        "attention.head_count_kv": "num_key_value_heads",
        "attention.key_length": "head_dim",
        "rope.freq_base": "rope_theta",
    },
    neutral={
        "attention.causal": (True,),
        "expert_count": (0,),
        "expert_used_count": (0,),
        "tensor_data_layout": ("Meta AI original pth",),
    },
    tensors={"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"},
    layer_tensors={
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    },
    interleaved={"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"},
    attention_biases=("attn_q", "attn_k", "attn_v", "attn_output"),
    mlp_biases=("ffn_gate", "ffn_up", "ffn_down"),
)

GGUF_ARCHS: Mapping[str, GgufArch] = {"llama": LLAMA}
