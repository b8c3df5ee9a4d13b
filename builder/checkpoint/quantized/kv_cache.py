"""Read the fixed scales of keys and values: what the config says of them, and one tensor each per layer.

All of them are multiplied by. modelopt's exporter writes max |x| / 448 of what it saw, as it is; its exporter for TensorRT-LLM
raises them to at least 1, which only costs E4M3 numbers that are small.
"""

import re
from collections.abc import Mapping

import numpy as np

from builder.checkpoint.kv_scales import KVScales
from builder.checkpoint.quantized.compressed_activations import HARMLESS_OF_NUMBERS
from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.errors import CheckpointError

ALGORITHMS = {"fp8": "fp8", "int8": "int8-static"}
"""Precisions by the names that modelopt has for them."""
NUMBERS = {"float": "fp8", "int": "int8-static"}
"""Precisions by the type of their 8 bits."""
NAMINGS = (
    ("k_proj.k_scale", "v_proj.v_scale"),
    ("k_scale", "v_scale"),
    ("k_proj.output_scale", "v_proj.output_scale"),
)
"""Tensors of an attention by modelopt, by compressed-tensors, and by early versions of that."""
PROJECTION = re.compile(r"((?:.+\.)?layers\.(\d{1,9})\.self_attn)\.k_proj\..+")
SCALE = re.compile(
    rf"(?:.+\.)?self_attn\.(?:{'|'.join(re.escape(name) for pair in NAMINGS for name in pair)})"
)
LEAST, MOST = np.finfo(np.float32).tiny, np.finfo(np.float32).max / 512
"""Between them a scale divides and multiplies numbers of 8 bits exactly as it should."""


def kv_precision(fields: Fields) -> str | None:
    """Read in what keys and values are stored; None where the config says nothing of it.

    Raises:
        CheckpointError: it says two things.
        UnsupportedError: they are stored in another way than in 8 bits with one fixed scale per layer.
    """
    told = {_by_name(fields, "kv_cache_quant_algo"), _by_scheme(fields)} - {None}
    if len(told) > 1:
        raise CheckpointError(
            "quantization_config: kv_cache_quant_algo and kv_cache_scheme contradict each other"
        )
    return told.pop() if told else None


def _by_name(fields: Fields, name: str) -> str | None:
    return ALGORITHMS.get(fields.choice(name, ("none", *ALGORITHMS), default="none"))


def _by_scheme(fields: Fields) -> str | None:
    if isinstance(fields.take("kv_cache_scheme"), str):
        return _by_name(fields, "kv_cache_scheme")
    scheme = fields.section("kv_cache_scheme")
    if scheme is None:
        return None
    scheme.choice("num_bits", (8,))
    scheme.choice("strategy", ("tensor",), default="tensor")
    scheme.choice("dynamic", (False,), default=False)
    scheme.choice("symmetric", (True,), default=True)
    scheme.require_empty("group_size", "block_structure", "actorder")
    precision = NUMBERS[scheme.choice("type", tuple(NUMBERS), default="int")]
    scheme.finish(HARMLESS_OF_NUMBERS)
    return precision


def is_kv_scale(name: str) -> bool:
    """Tell whether a tensor is a scale of keys or values."""
    return SCALE.fullmatch(name) is not None


def read_kv_scales(tensors: Mapping[str, Tensor], precision: str | None) -> KVScales | None:
    """Read the scales of all layers, which must be there if the config gives a precision, and only then.

    Raises:
        CheckpointError: one is missing, too much, or no number to divide by; names the tensor.
    """
    there = [name for name in tensors if is_kv_scale(name)]
    if precision is None:
        if there:
            raise CheckpointError(
                f"tensor {there[0]} is a scale of keys or values, but quantization_config does not say that these are "
                "quantized: the two contradict each other"
            )
        return None
    weights = [name for name in tensors if not is_kv_scale(name)]
    matches = [found for name in weights if (found := PROJECTION.fullmatch(name))]
    layers = [name for _, name in sorted({(int(found[2]), found[1]) for found in matches})]
    naming = next(
        (
            pair
            for pair in NAMINGS
            if any(f"{x}.{part}" in tensors for x in layers for part in pair)
        ),
        NAMINGS[0],
    )
    keys, values = ([f"{layer}.{part}" for layer in layers] for part in naming)
    if extra := sorted(set(there) - {*keys, *values}):
        raise CheckpointError(
            f"tensor {extra[0]} is a scale of keys or values too many: no layer here needs it"
        )
    return KVScales(
        precision,
        tuple(_scale(tensors, name, precision) for name in keys),
        tuple(_scale(tensors, name, precision) for name in values),
    )


def _scale(tensors: Mapping[str, Tensor], name: str, precision: str) -> float:
    tensor = tensors.get(name)
    if tensor is None:
        raise CheckpointError(
            f"quantization_config says that keys and values are quantized ({precision}), but tensor {name} is missing; "
            "download or calibrate the checkpoint again"
        )
    if tensor.stored not in FLOATS or tensor.shape not in ((), (1,)):
        raise CheckpointError(
            f"tensor {name} is {tensor.stored} {tensor.shape}; a scale of keys or values must be one float"
        )
    scale = float(tensor.read().reshape(()))
    if not LEAST <= scale <= MOST:
        raise CheckpointError(
            f"tensor {name} is {scale:g}; a scale of keys or values must be from {LEAST:.3g} to {MOST:.3g}; "
            "download or calibrate the checkpoint again"
        )
    return scale
