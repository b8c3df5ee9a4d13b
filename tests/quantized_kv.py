"""Write tiny Llamas of FP8 weights that bring scales for their keys and values, as modelopt and compressed-tensors name them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests.quantized import TOKEN, Array, Writer, ct_section

KV_NAMES = {
    "modelopt": ("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"),
    "compressed-tensors": ("self_attn.k_scale", "self_attn.v_scale"),
    "compressed-tensors, early": ("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"),
}
"""Scales of keys and values, by who writes them."""
CT_KV = {
    "num_bits": 8,
    "type": "float",
    "strategy": "tensor",
    "dynamic": False,
    "symmetric": True,
    "group_size": None,
    "block_structure": None,
    "actorder": None,
    "observer": "minmax",
    "observer_kwargs": {},
}


def kv_scale(layer: int, which: int) -> float:
    """Give a scale that float16 and bfloat16 hold, another for keys (0) and values (1) of each layer."""
    return (3 + layer) / 64 if which == 0 else (1 + layer) / 128


def write_fp8_with_kv(
    folder: Path,
    naming: str = "modelopt",
    kv: Any = "FP8",
    *,
    num_layers: int = 2,
    altered: Mapping[str, Array | None] | None = None,
    **model: Any,
) -> Path:
    """A tiny Llama of FP8 weights per channel, and one scale each for keys and values of a layer.

    `kv` is what modelopt's `kv_cache_quant_algo` or the `kv_cache_scheme` of compressed-tensors says; `altered` puts tensors in the place
    of others at last, or takes them away.
    """
    out = Writer(folder, **({"dtype": "bfloat16", "num_hidden_layers": num_layers} | model))
    for name, float_weight in out.layers():
        scales = np.abs(float_weight.astype(np.float32)).max(axis=1) / 448
        numbers = (float_weight.astype(np.float32) / scales[:, None]).clip(-448, 448)
        out.tensors |= {
            f"{name}.weight": numbers.astype(ml_dtypes.float8_e4m3fn),
            f"{name}.weight_scale": scales if naming == "modelopt" else scales[:, None],
        }
    shape: tuple[int, ...] = () if naming == "modelopt" else (1,)
    stored = np.float32 if naming == "modelopt" else out.stored
    for layer in range(num_layers):
        for which, name in enumerate(KV_NAMES[naming]):
            scale = np.full(shape, kv_scale(layer, which), stored)
            out.tensors[f"model.layers.{layer}.{name}"] = scale
    there = out.tensors | dict(altered or {})
    out.tensors = {name: value for name, value in there.items() if value is not None}
    if naming == "modelopt":
        section = {"quant_method": "modelopt", "quant_algo": "FP8_PER_CHANNEL_PER_TOKEN"}
        return out.finish(section | {"kv_cache_quant_algo": kv, "ignore": ["lm_head"]})
    weights = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
    rows = TOKEN | {"type": "float"}
    return out.finish(
        ct_section("float-quantized", weights, rows) | {"kv_cache_scheme": CT_KV | (kv or {})}
    )
