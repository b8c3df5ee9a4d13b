"""Write tiny Llamas as other programs quantize them, from the published layouts: packed number by number, not by our own code.

Every writer gives what it wrote, by the name of the weight, so that a test can ask for exactly that.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from tests.models import DTYPES, tiny_llama

Array = NDArray[Any]
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Written:
    """What stands in the files, as the numbers that are meant: a weight is `(numbers - zeros) * scales`."""

    numbers: Array
    """`[out, in]`; integers, or floats of the format."""
    scales: Array
    """`[out, groups]` float32."""
    group: int
    """0 for a whole row."""
    zeros: Array | None = None
    """`[out, groups]`."""

    def floats(self) -> Array:
        width = self.numbers.shape[1]
        spread = [
            np.repeat(part, self.group or width, axis=1)[:, :width]
            for part in (
                self.scales,
                np.zeros_like(self.scales) if self.zeros is None else self.zeros,
            )
        ]
        return ((self.numbers.astype(np.float32) - spread[1]) * spread[0]).astype(np.float32)


def words(values: Array, bits: int, axis: int) -> Array:
    """Pack unsigned numbers along an axis into int32, lowest bits first; the last word is filled with zeros."""
    together = 32 // bits
    moved = np.moveaxis(values.astype(np.uint32), axis, -1)
    packed = np.zeros((*moved.shape[:-1], -(-moved.shape[-1] // together)), np.uint32)
    for index in range(moved.shape[-1]):
        packed[..., index // together] |= moved[..., index] << np.uint32(bits * (index % together))
    return np.ascontiguousarray(np.moveaxis(packed.view(np.int32), -1, axis))


def groups_of(size_in: int, group: int) -> int:
    return -(-size_in // group) if group else 1


class Writer:
    """A tiny Llama whose linear layers are replaced one by one."""

    def __init__(
        self, folder: Path, *, seed: int = 0, dtype: str = "float16", **config: Any
    ) -> None:
        self.folder = tiny_llama(folder, seed=seed, dtype=dtype, **config)
        self.tensors = load_file(folder / WEIGHTS)
        self.stored = DTYPES[dtype]
        self.draw = np.random.default_rng(seed + 1)
        self.written: dict[str, Written] = {}

    def layers(self) -> Iterator[tuple[str, Array]]:
        """Take the float weights of linear layers out of the files, each with the name of its layer."""
        for name in sorted(self.tensors):
            if name.endswith("_proj.weight"):
                yield name.removesuffix(".weight"), self.tensors.pop(name)

    def scales(self, size_out: int, count: int, width: float) -> Array:
        """Draw scales that make weights of the usual size out of numbers up to `width`, as the files hold them."""
        drawn = self.draw.uniform(0.5, 1.5, (size_out, count)) / (width * 8)
        return drawn.astype(self.stored).astype(np.float32)

    def finish(self, section: Any) -> Path:
        path = self.folder / "config.json"
        config = json.loads(path.read_text())
        if section is not None:
            config["quantization_config"] = section
        path.write_text(json.dumps(config))
        save_file(self.tensors, self.folder / WEIGHTS, metadata={"format": "pt"})
        return self.folder


def write_gptq(
    folder: Path,
    *,
    bits: int = 4,
    group: int = 32,
    symmetric: bool = True,
    version: str = "gptq",
    order: Callable[[int], Array] | None = None,
    **model: Any,
) -> dict[str, Written]:
    """`order` gives for a number of inputs the group of each; without it there is no g_idx."""
    out, most = Writer(folder, **model), (1 << bits) - 1
    for name, float_weight in out.layers():
        size_out, size_in = float_weight.shape
        count = groups_of(size_in, group)
        numbers = out.draw.integers(0, most + 1, (size_out, size_in))
        scales = out.scales(size_out, count, most / 2)
        middle = (most + 1) // 2
        zeros = np.full((size_out, count), middle)
        if not symmetric:
            zeros = out.draw.integers(1, most + 1, (size_out, count))
        out.tensors |= {
            f"{name}.qweight": words(numbers.T, bits, 0),
            f"{name}.qzeros": words((zeros - (version == "gptq")).T, bits, 1),
            f"{name}.scales": np.ascontiguousarray(scales.T).astype(out.stored),
        }
        if order is not None:
            out.tensors[f"{name}.g_idx"] = order(size_in).astype(np.int32)
        shown = numbers - middle if symmetric else numbers
        out.written[f"{name}.weight"] = Written(shown, scales, group, None if symmetric else zeros)
    section = {
        "quant_method": "gptq",
        "bits": bits,
        "group_size": group or -1,
        "desc_act": order is not None,
        "sym": symmetric,
        "true_sequential": True,
        "checkpoint_format": version,
        "damp_percent": 0.1,
    }
    out.finish(section)
    return out.written


def write_awq(folder: Path, *, group: int = 32, **model: Any) -> dict[str, Written]:
    out = Writer(folder, **model)
    for name, float_weight in out.layers():
        size_out, size_in = float_weight.shape
        count = groups_of(size_in, group)
        numbers = out.draw.integers(0, 16, (size_out, size_in))
        zeros = out.draw.integers(0, 16, (size_out, count))
        scales = out.scales(size_out, count, 8)
        out.tensors |= {
            f"{name}.qweight": _awq_words(numbers.T),
            f"{name}.qzeros": _awq_words(zeros.T),
            f"{name}.scales": np.ascontiguousarray(scales.T).astype(out.stored),
        }
        out.written[f"{name}.weight"] = Written(numbers, scales, group, zeros)
    out.finish(
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": group or -1,
            "version": "gemm",
            "zero_point": True,
            "modules_to_not_convert": None,
        }
    )
    return out.written


def _awq_words(values: Array) -> Array:
    """Pack `[n, out]` so that the nibbles of a word are, lowest first, outputs 0, 2, 4, 6, 1, 3, 5, 7."""
    order = [
        8 * word + place
        for word in range(values.shape[1] // 8)
        for place in (0, 2, 4, 6, 1, 3, 5, 7)
    ]
    return words(values[:, order], 4, 1)


def ct_section(form: str, weights: dict[str, Any], rows: dict[str, Any] | None) -> dict[str, Any]:
    """Give the quantization_config that llm-compressor writes."""
    common = {
        "dynamic": False,
        "observer": "minmax",
        "observer_kwargs": {},
        "block_structure": None,
        "actorder": None,
    }
    return {
        "quant_method": "compressed-tensors",
        "format": form,
        "quantization_status": "compressed",
        "global_compression_ratio": None,
        "kv_cache_scheme": None,
        "moe_sparsity_config": None,
        "sparsity_config": {},
        "transform_config": {},
        "version": "0.20.1",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": common | weights,
                "input_activations": rows,
                "output_activations": None,
            }
        },
    }


TOKEN = {
    "num_bits": 8,
    "type": "int",
    "strategy": "token",
    "dynamic": True,
    "symmetric": True,
    "observer": None,
}


def write_packed(
    folder: Path,
    *,
    bits: int = 4,
    group: int = 32,
    symmetric: bool = True,
    order: Callable[[int], Array] | None = None,
    **model: Any,
) -> dict[str, Written]:
    """compressed-tensors `pack-quantized`."""
    out, half = Writer(folder, **({"dtype": "bfloat16"} | model)), 1 << (bits - 1)
    for name, float_weight in out.layers():
        size_out, size_in = float_weight.shape
        count = groups_of(size_in, group)
        numbers = out.draw.integers(-half, half, (size_out, size_in))
        zeros = out.draw.integers(-half, half, (size_out, count))
        scales = out.scales(size_out, count, half)
        out.tensors |= {
            f"{name}.weight_packed": words(numbers + half, bits, 1),
            f"{name}.weight_scale": scales.astype(out.stored),
            f"{name}.weight_shape": np.array([size_out, size_in], np.int64),
        }
        if not symmetric:
            out.tensors[f"{name}.weight_zero_point"] = words(zeros + half, bits, 0)
        if order is not None:
            out.tensors[f"{name}.weight_g_idx"] = order(size_in).astype(np.int32)
        shown = (numbers, None) if symmetric else (numbers + half, zeros + half)
        out.written[f"{name}.weight"] = Written(shown[0], scales, group, shown[1])
    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "group_size": group or None}
    weights["strategy"] = "group" if group else "channel"
    out.finish(ct_section("pack-quantized", weights, None))
    return out.written


def write_w8a8(folder: Path, *, strategy: str = "channel", **model: Any) -> dict[str, Written]:
    """compressed-tensors `int-quantized`, dynamic activations."""
    out = Writer(folder, **({"dtype": "bfloat16"} | model))
    for name, float_weight in out.layers():
        size_out, size_in = float_weight.shape
        numbers = out.draw.integers(-128, 128, (size_out, size_in)).astype(np.int8)
        scales = out.scales(size_out if strategy == "channel" else 1, 1, 128)
        stored = scales if strategy == "channel" else scales.reshape(1)
        out.tensors |= {
            f"{name}.weight": numbers,
            f"{name}.weight_scale": stored.astype(out.stored),
        }
        wide = np.broadcast_to(scales, (size_out, 1))
        out.written[f"{name}.weight"] = Written(numbers, wide, 0)
    weights = {
        "num_bits": 8,
        "type": "int",
        "symmetric": True,
        "group_size": None,
        "strategy": strategy,
    }
    out.finish(ct_section("int-quantized", weights, TOKEN))
    return out.written


def fp8(draw: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return draw.uniform(-448, 448, shape).astype(ml_dtypes.float8_e4m3fn)


def nvfp4_bytes(numbers: Array) -> Array:
    """Pack e2m1 numbers `[out, in]` two in a byte, the first in the lower half."""
    nibbles = numbers.view(np.uint8) & 15
    return (nibbles[:, ::2] | (nibbles[:, 1::2] << 4)).astype(np.uint8)
