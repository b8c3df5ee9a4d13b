"""NVIDIA's unified checkpoints (`quant_method` modelopt): FP8 per tensor, per channel or per block, NVFP4, int8, and AWQ.

With quant_algo MIXED_PRECISION, each layer has its own. `weight_scale` is multiplied by; that of NVFP4 is E4M3 per 16 inputs and
itself multiplied by `weight_scale_2`. `input_scale` is the fixed scale of a layer's rows, `pre_quant_scale` what they are multiplied
with before. AWQ packs two outputs in a byte. `k_scale` and `v_scale` are those of keys and values.
"""

from collections.abc import Callable, Mapping

import numpy as np

from builder.checkpoint.groups import num_groups
from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.quantized.floats import (
    NVFP4_GROUP,
    by_outputs,
    fp8_by_blocks,
    fp8_by_rows,
    nvfp4,
    row_scales,
)
from builder.checkpoint.quantized.globs import Globs
from builder.checkpoint.quantized.kv_cache import kv_precision
from builder.checkpoint.quantized.modules import Found, Module, check_lists, quantized_modules
from builder.checkpoint.quantized.numbers import codes, numbers, signed
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.rows import ANY, BLOCK_SIZE, FLOAT, SIXTEEN, TENSOR, TOKEN
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.errors import CheckpointError

MIXED, AWQ = "mixed_precision", "w4a16_awq"
PARTS = ("weight_scale", "weight_scale_2", "input_scale", "pre_quant_scale")
HARMLESS = ("config_groups", "producer", "quant_library", "has_zero_point", "pre_quant_scale")
"""What the tensors say themselves: a scale before quantization, say, is a tensor that nothing would use."""
BLOCK = (BLOCK_SIZE, BLOCK_SIZE)
AWQ_GROUPS = (128, 64, 32)


def _int8(rows: str) -> Callable[[Module], QuantizedWeight]:
    return lambda module: by_outputs(module, "weight_scale", stored="I8", form="int8", rows=rows)


def _fp8(rows: str) -> Callable[[Module], QuantizedWeight]:
    return lambda module: fp8_by_rows(module, "weight_scale", rows)


def _nvfp4(rows: str) -> Callable[[Module], QuantizedWeight]:
    return lambda module: nvfp4(
        module, "weight", "weight_scale_2", of_file=lambda scale: scale, rows=rows
    )


def _awq(group: int | None) -> Callable[[Module], QuantizedWeight]:
    return lambda module: _int4(module, group)


def _int4(module: Module, told: int | None) -> QuantizedWeight:
    """Give a weight in groups of a size that the config tells, or else of the one that its scales leave."""
    words, half, size_in = module.matrix("weight", ("U8",))
    size_out = 2 * half
    sizes = AWQ_GROUPS if told is None else (told,)
    shapes = {(size_out, num_groups(size_in, size)): size for size in sizes}
    scales = module.part("weight_scale", FLOATS, *shapes)
    group = shapes[scales.shape[0], scales.shape[1]]
    if told is None and size_in % group:
        raise CheckpointError(
            f"tensor {scales.name} of shape {scales.shape} does not tell the size of its groups, nor does the config"
        )

    def load() -> Parts:
        pairs = codes(numbers(words).T, 4)  # `[in, out]`
        return signed(pairs.T ^ np.uint8(8), 4), numbers(scales)

    return QuantizedWeight(
        name=words.name,
        format="int4",
        group=group,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        row_scales=row_scales(module, ANY, size_in),
    )


ALGORITHMS: dict[str, Callable[[Module], QuantizedWeight]] = {
    "fp8": _fp8(TENSOR),
    "fp8_per_channel_per_token": _fp8(TOKEN),
    "fp8_pb_wo": lambda module: fp8_by_blocks(module, "weight_scale", BLOCK, FLOAT),
    "nvfp4": _nvfp4(SIXTEEN),
    "w4a16_nvfp4": _nvfp4(FLOAT),
    "w8a16": _int8(ANY),
    "w8a8_sq_per_channel": _int8(TENSOR),
}
"""How weights are read, by `quant_algo` in lower case."""
GROUPS = {"fp8_pb_wo": (BLOCK_SIZE,), "nvfp4": (NVFP4_GROUP,), "w4a16_nvfp4": (NVFP4_GROUP,)}
"""What `group_size` may say; of all others it may be absent or 0."""


def _group_of(fields: Fields) -> int | None:
    """Give the size of groups that `config_groups` names, if it does: config.json may have it there, or nowhere."""
    groups = fields.take("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    found = weights.get("group_size") if isinstance(weights, dict) else None
    return found if type(found) is int else None


def _algorithm(fields: Fields) -> Callable[[Module], QuantizedWeight]:
    """Give what reads the layers of one section."""
    name = fields.choice("quant_algo", (*ALGORITHMS, AWQ))
    if name == AWQ:
        given = fields.take("group_size") or _group_of(fields)
        return _awq(fields.choice("group_size", AWQ_GROUPS, default=given) if given else None)
    fields.choice("group_size", GROUPS.get(name, (0,)), default=GROUPS.get(name, (0,))[0])
    return ALGORITHMS[name]


def _algorithms(section: Fields) -> dict[str, Callable[[Module], QuantizedWeight]]:
    """Give what reads each layer, by name, of a checkpoint that mixes; nothing for one that does not."""
    if section.choice("quant_algo", (*ALGORITHMS, AWQ, MIXED)) != MIXED:
        return {}
    layers = section.sections("quantized_layers")
    found = {name: _algorithm(own) for name, own in layers.items()}
    for own in layers.values():
        own.finish(HARMLESS)
    return found


def agree(section: object, other: object) -> bool:
    """Tell whether config.json and modelopt's own file say the same: of the algorithm, what is left out, and keys and values.

    Raises:
        CheckpointError: one of them is no section.
        UnsupportedError: one asks for what is not implemented.
    """
    if not isinstance(section, dict) or not isinstance(other, dict):
        return False
    both = [Fields(each, "quantization_config") for each in (section, other)]
    told = [
        (each.take("quant_algo"), set(each.names("exclude_modules", "ignore")), kv_precision(each))
        for each in both
    ]
    return told[0] == told[1]


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    inner = fields.section("quantization")  # so in hf_quant_config.json, flat in config.json
    section = inner or fields
    named = _algorithms(section)
    common = None if named else _algorithm(section)
    kv = kv_precision(section)
    excluded = section.names("exclude_modules", "ignore")
    section.finish(HARMLESS)
    if inner is not None:
        fields.finish(HARMLESS)
    modules = quantized_modules(tensors, PARTS)

    globs = Globs(excluded)

    def is_excluded(name: str) -> bool:
        parts = name.split(".")
        return any(globs.name(".".join(parts[:count])) for count in range(1, len(parts) + 1))

    def is_target(name: str) -> bool:
        return not named or name in named

    check_lists(tensors, modules, is_excluded=is_excluded, is_target=is_target)
    if lost := sorted(set(named) - {module.name for module in modules}):
        raise CheckpointError(
            f"quantization_config says that {lost[0]} is quantized, and no tensor of it is there"
        )
    weights = [(common or named[module.name])(module) for module in modules]
    return Found(modules, weights, kv)
