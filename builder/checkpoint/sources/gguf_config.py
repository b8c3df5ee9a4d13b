"""Turns GGUF metadata into the content of a Hugging Face config.json.

Each key under the architecture's prefix is read, or required to have its neutral value, or refused by name.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from builder.checkpoint.sources.gguf_archs import GGUF_ARCHS, GgufArch
from builder.checkpoint.sources.gguf_file import GgufFile, StoredTensor
from builder.errors import CheckpointError, UnsupportedError, unknown_name

ROPE_FACTORS = "rope_freqs.weight"
DEFAULT_ROPE_THETA = 10000.0
WHOLE_MODEL: Mapping[str, tuple[Any, ...]] = {
    "general.type": ("model",),
    "general.quantization_version": (2,),  # block layouts since May 2023; nothing reads older ones
    "split.count": (1, 0),
    "split.no": (0,),
}


class ArchMetadata:
    """The metadata of one architecture, which remembers what was read of it."""

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self._arch = arch
        prefix = arch + "."
        self._values = {
            key.removeprefix(prefix): value
            for key, value in metadata.items()
            if key.startswith(prefix)
        }
        self._read: set[str] = set()

    def get(self, key: str) -> Any:
        """Give a value, or None. A list with one value per layer must be the same in all layers.

        Raises:
            UnsupportedError: the layers differ.
        """
        self._read.add(key)
        value = self._values.get(key)
        if not isinstance(value, list):
            return _shortest(value)
        if len(set(value)) != 1:
            raise UnsupportedError(
                f"{self._arch}.{key} differs between layers, which is not supported"
            )
        return _shortest(value[0])

    def need(self, key: str) -> Any:
        """Give a value that must be there.

        Raises:
            CheckpointError: it is absent.
        """
        if (value := self.get(key)) is None:
            raise CheckpointError(f"the GGUF file lacks {self._arch}.{key}")
        return value

    def require(self, key: str, *allowed: Any) -> None:
        """Refuse a key unless it is absent or has one of the values that change nothing.

        Raises:
            UnsupportedError: it has another value.
        """
        value = self.get(key)
        if value is not None and value not in allowed:
            raise UnsupportedError(
                f"{self._arch}.{key} is {value!r}; only {' or '.join(map(repr, allowed))} is supported"
            )

    def finish(self) -> None:
        """Refuse keys that nobody read.

        Raises:
            UnsupportedError: names them.
        """
        left = sorted(self._values.keys() - self._read)
        if left:
            names = ", ".join(f"{self._arch}.{key}" for key in left[:5])
            raise UnsupportedError(f"the GGUF file has {names}, which is not implemented")


def find_arch(metadata: Mapping[str, Any]) -> tuple[str, GgufArch]:
    """Give the architecture's name and table.

    Raises:
        CheckpointError: the file names none.
        UnsupportedError: it is unknown, or the file is not one whole model.
    """
    name = metadata.get("general.architecture")
    if not isinstance(name, str):
        raise CheckpointError("the GGUF file lacks general.architecture")
    if name not in GGUF_ARCHS:
        raise UnsupportedError(unknown_name("GGUF architecture", name, GGUF_ARCHS))
    for key, allowed in WHOLE_MODEL.items():
        value = metadata.get(key, allowed[0])
        if value not in allowed:
            raise UnsupportedError(
                f"{key} is {value!r}, only {' or '.join(map(repr, allowed))} is supported"
                + (
                    "; merge the parts with llama-gguf-split --merge"
                    if key.startswith("split")
                    else ""
                )
            )
    return name, GGUF_ARCHS[name]


def read_config(file: GgufFile) -> dict[str, Any]:
    """Give the content of config.json for a GGUF file.

    Raises:
        CheckpointError: a key is missing, or contradicts another or a tensor.
        UnsupportedError: a key asks for something that is not implemented.
    """
    name, arch = find_arch(file.metadata)
    metadata = ArchMetadata(file.metadata, name)
    config = dict(arch.config)
    config |= {field: metadata.need(key) for key, field in arch.sizes.items()}
    found = {field: metadata.get(key) for key, field in arch.optional.items()}
    config |= {field: value for field, value in found.items() if value is not None}
    for key, allowed in arch.neutral.items():
        metadata.require(key, *allowed)
    _complete(config, metadata)
    config["vocab_size"] = _vocab_size(file.tensors, metadata)
    config["tie_word_embeddings"] = "output.weight" not in file.tensors
    config["attention_bias"] = _has_bias(file, arch.attention_biases)
    config["mlp_bias"] = _has_bias(file, arch.mlp_biases)
    if (scaling := _rope_scaling(metadata, file.tensors.get(ROPE_FACTORS))) is not None:
        config["rope_scaling"] = scaling
    for field in ("bos_token_id", "eos_token_id"):
        if (token_id := file.metadata.get(f"tokenizer.ggml.{field}")) is not None:
            config[field] = token_id
    metadata.finish()
    return config


def _complete(config: dict[str, Any], metadata: ArchMetadata) -> None:
    """Fill in what absent keys mean, and check head sizes."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]
    if not all(type(size) is int and size > 0 for size in (heads, hidden)):
        raise CheckpointError("the GGUF file has head_count or embedding_length that is no size")
    config.setdefault("num_key_value_heads", heads)
    config.setdefault("rope_theta", DEFAULT_ROPE_THETA)
    config.setdefault("head_dim", hidden // heads)
    metadata.require("attention.value_length", config["head_dim"])
    metadata.require("rope.dimension_count", config["head_dim"])


def _vocab_size(tensors: Mapping[str, StoredTensor], metadata: ArchMetadata) -> int:
    """Give the rows of the embedding table, which the metadata must not contradict."""
    embedding = tensors.get("token_embd.weight")
    if embedding is None or len(embedding.shape) != 2:
        raise CheckpointError("the GGUF file has no matrix token_embd.weight")
    rows = embedding.shape[0]
    claimed = metadata.get("vocab_size")
    if claimed not in (None, rows):
        raise CheckpointError(f"vocab_size is {claimed}, but token_embd.weight has {rows} rows")
    return rows


def _has_bias(file: GgufFile, parts: tuple[str, ...]) -> bool:
    return any(f"blk.0.{part}.bias" in file.tensors for part in parts)


def _rope_scaling(metadata: ArchMetadata, factors: StoredTensor | None) -> dict[str, Any] | None:
    """Give config.json's rope_scaling. GGUF keeps the llama3 rule as a tensor of divisors."""
    for key in ("rope.scaling.finetuned", "rope.scaling.original_context_length"):
        metadata.get(key)  # notes about training; linear scaling does not use them
    metadata.require("rope.scaling.attn_factor", 1.0, 0.0)
    kind = metadata.get("rope.scaling.type")
    older = metadata.get("rope.scale_linear")
    factor = metadata.get("rope.scaling.factor") or older or 1.0  # 0 stands for none
    if kind not in (None, "none", "linear"):
        raise UnsupportedError(
            f"rope scaling type {kind!r} is not supported; supported: none, linear"
        )
    is_scaled = kind != "none" and factor != 1.0
    if factors is None:
        return {"rope_type": "linear", "factor": factor} if is_scaled else None
    if is_scaled:
        raise UnsupportedError(
            f"rope scaling by {ROPE_FACTORS} and by a factor at once is not supported"
        )
    if factors.type.name != "F32" or len(factors.shape) != 1:
        raise UnsupportedError(f"{ROPE_FACTORS} must be a vector of F32, not {factors.type.name}")
    divisors = factors.raw.reshape(-1).view("<f4").astype(np.float64)
    if not (np.isfinite(divisors) & (divisors > 0)).all():
        raise CheckpointError(f"{ROPE_FACTORS} holds numbers that are not above 0")
    return {"rope_type": "factors", "factors": [_shortest(value) for value in divisors.tolist()]}


def _shortest(value: Any) -> Any:
    """Give the decimal that was meant by a float32: 1e-05 is stored as 9.999999747378752e-06."""
    if not isinstance(value, float):
        return value
    with np.errstate(over="ignore"):
        stored = np.float32(value)
    return float(str(stored)) if float(stored) == value else value
