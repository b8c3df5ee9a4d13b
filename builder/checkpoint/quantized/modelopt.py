"""NVIDIA's unified checkpoints (`quant_method` modelopt): FP8 per tensor, per channel or per block, NVFP4, and int8 weights.

`weight_scale` is multiplied by; that of NVFP4 is E4M3 per 16 inputs and itself multiplied by `weight_scale_2`. `input_scale` is the
fixed scale of a layer's rows; `k_scale` and `v_scale` are those of keys and values.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.quantized.floats import (
    by_outputs,
    fp8_by_blocks,
    fp8_by_rows,
    nvfp4,
)
from builder.checkpoint.quantized.kv_cache import kv_precision
from builder.checkpoint.quantized.modules import Found, Module, check_lists, quantized_modules
from builder.checkpoint.quantized_weight import FLOAT_ROWS, TOKEN_ROWS, QuantizedWeight
from builder.checkpoint.tensors import Tensor

PARTS = ("weight_scale", "weight_scale_2", "input_scale")
HARMLESS = ("config_groups", "producer", "quant_library", "has_zero_point", "pre_quant_scale")
"""What the tensors say themselves: a scale before quantization, say, is a tensor that nothing would use."""
BLOCK = (128, 128)


def _int8(module: Module) -> QuantizedWeight:
    return by_outputs(module, "weight_scale", stored="I8", form="int8")


def _fp8(rows: str) -> Callable[[Module], QuantizedWeight]:
    return lambda module: fp8_by_rows(module, "weight_scale", rows)


def _nvfp4(rows: str) -> Callable[[Module], QuantizedWeight]:
    return lambda module: nvfp4(
        module, "weight", "weight_scale_2", of_file=lambda scale: scale, rows=rows
    )


ALGORITHMS: dict[str, Callable[[Module], QuantizedWeight]] = {
    "fp8": _fp8("tensor"),
    "fp8_per_channel_per_token": _fp8(TOKEN_ROWS),
    "fp8_pb_wo": lambda module: fp8_by_blocks(module, "weight_scale", BLOCK, FLOAT_ROWS),
    "nvfp4": _nvfp4("group of 16"),
    "w4a16_nvfp4": _nvfp4(FLOAT_ROWS),
    "w8a16": _int8,
}
"""How weights are read, by `quant_algo` in lower case."""


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    inner = fields.section("quantization")  # so in hf_quant_config.json, flat in config.json
    section = inner or fields
    algorithm = ALGORITHMS[section.choice("quant_algo", tuple(ALGORITHMS))]
    section.choice("group_size", (16, 128), default=16)
    kv = kv_precision(section)
    excluded = section.names("exclude_modules", "ignore")
    section.finish(HARMLESS)
    if inner is not None:
        fields.finish(HARMLESS)
    modules = quantized_modules(tensors, PARTS)

    def is_excluded(name: str) -> bool:
        parts = name.split(".")
        above = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return any(fnmatchcase(one, pattern) for pattern in excluded for one in above)

    check_lists(tensors, modules, is_excluded=is_excluded, is_target=lambda _: True)
    weights = [algorithm(module) for module in modules]
    return Found(modules, weights, kv)
