"""Write the fixed scales of keys and values, one each per layer, and what a config says of them.

The tensors are those that `checkpoint/quantized/kv_cache.py` lists.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from builder.artifact.config import KVGroup
from builder.artifact.weights import WeightSpec
from builder.checkpoint.quantized.kv_cache import NAMINGS, NUMBERS


@dataclass(frozen=True, slots=True)
class KVNames:
    """How a layout names the scales of an attention."""

    keys: str
    values: str
    shape: tuple[int, ...]


MODELOPT = KVNames(*NAMINGS[0], ())
COMPRESSED_TENSORS = KVNames(*NAMINGS[1], (1,))
FIELD = "kv_cache_scheme"


def kv_specs(groups: Sequence[KVGroup], names: KVNames) -> Iterator[WeightSpec]:
    """Give the tensors of the layers of groups that have scales."""
    for group in groups:
        scales = zip(group.layers, group.key_scales, group.value_scales, strict=True)
        for layer, key, value in scales:
            attention = f"model.layers.{layer}.self_attn"
            yield _scale(f"{attention}.{names.keys}", key, names.shape)
            yield _scale(f"{attention}.{names.values}", value, names.shape)


def kv_field(groups: Sequence[KVGroup]) -> dict[str, Any]:
    """Give the field of a quantization_config that says what keys and values with scales are, if there are any."""
    if not groups:
        return {}
    (precision,) = {group.dtype for group in groups}
    (kind,) = (name for name, own in NUMBERS.items() if own == precision)
    scheme = {"num_bits": 8, "type": kind, "strategy": "tensor", "symmetric": True}
    return {FIELD: {**scheme, "dynamic": False}}


def _scale(name: str, scale: float, shape: tuple[int, ...]) -> WeightSpec:
    return WeightSpec(name, "F32", shape, lambda: np.full(shape, scale, np.float32))
