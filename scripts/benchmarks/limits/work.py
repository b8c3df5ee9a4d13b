"""Count what a step of an artifact must do: bytes of weights and of keys and values, and operations."""

import json
from dataclasses import dataclass

from builder.artifact.config import ModelConfig
from builder.artifact.store import Artifact

EMBEDDING = "model.embed_tokens.weight"
LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header."""


@dataclass(frozen=True, slots=True)
class Work:
    """What one step reads and computes."""

    weight_bytes: int
    kv_bytes: int
    linear_ops: int
    attention_ops: int

    def seconds(self, gbps: float, tops: float, attention_tops: float) -> tuple[float, str]:
        """Give the least time of a step, and what it is bound by."""
        memory_s = (self.weight_bytes + self.kv_bytes) / gbps / 1e9
        compute_s = (self.linear_ops / tops + self.attention_ops / attention_tops) / 1e12
        return max(memory_s, compute_s), "memory" if memory_s > compute_s else "compute"


def weight_bytes(artifact: Artifact) -> int:
    """Count the bytes of weights that each step reads: all but single rows of tables."""
    record = artifact.manifest.engines[0]
    if record.weights is None:
        raise SystemExit(
            "this artifact's engine embeds its weights; roofline needs one for target cpu"
        )
    with artifact.path(record.weights).open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(LENGTH_BYTES), "little")))
    skipped = set() if artifact.manifest.model.tied_head else {EMBEDDING}
    return sum(
        entry["data_offsets"][1] - entry["data_offsets"][0]
        for name, entry in header.items()
        if name.endswith(".weight") and name not in skipped
    )


def linear_parameters(model: ModelConfig) -> int:
    """Count the weights of all layers that each token is multiplied with."""
    attention = (2 * model.num_heads + 2 * model.num_kv_heads) * model.head_dim
    return model.num_layers * model.hidden_size * (attention + 3 * model.intermediate_size)


def attention_ops(model: ModelConfig, pairs: int) -> int:
    """Count operations of scores and sums over so many pairs of a query and a key."""
    return 4 * model.num_layers * model.num_heads * model.head_dim * pairs


def decode_work(artifact: Artifact, num_sequences: int, context: int) -> Work:
    """Count a step in which each sequence gets one token after `context` others."""
    manifest = artifact.manifest
    head = manifest.model.vocab_size * manifest.model.hidden_size
    pairs = num_sequences * context
    return Work(
        weight_bytes=weight_bytes(artifact),
        kv_bytes=pairs * manifest.kv.bytes_per_token,
        linear_ops=2 * num_sequences * (linear_parameters(manifest.model) + head),
        attention_ops=attention_ops(manifest.model, pairs),
    )


def prompt_work(artifact: Artifact, num_tokens: int) -> Work:
    """Count a prompt that is computed in one step, with the head for its last row."""
    manifest = artifact.manifest
    head = manifest.model.vocab_size * manifest.model.hidden_size
    return Work(
        weight_bytes=weight_bytes(artifact),
        kv_bytes=num_tokens * manifest.kv.bytes_per_token,
        linear_ops=2 * (num_tokens * linear_parameters(manifest.model) + head),
        attention_ops=attention_ops(manifest.model, num_tokens * (num_tokens + 1) // 2),
    )
