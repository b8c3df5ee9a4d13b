"""compressed-tensors, as llm-compressor writes it: a scheme per group of layers, packed in one of several formats.

`pack-quantized`: `weight_packed` int32 `[out, in / n]` with n numbers of consecutive inputs in a word, lowest bits first, each plus
2**(bits - 1); `weight_scale` `[out, groups]`; `weight_zero_point` int32 `[out / n, groups]` packed along the outputs, lifted likewise;
`weight_shape`. `int-quantized` and `float-quantized`: `weight` as it is. `nvfp4-pack-quantized`: `weight_packed` uint8 `[out, in / 2]`,
`weight_scale` E4M3 `[out, in / 16]`, `weight_global_scale`, which is a divisor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np

from builder.checkpoint.groups import CHANNEL, Float32, num_groups
from builder.checkpoint.quantized.compressed_activations import (
    HARMLESS_OF_NUMBERS,
    read_activations,
)
from builder.checkpoint.quantized.fields import Fields, as_block
from builder.checkpoint.quantized.floats import (
    NVFP4_GROUP,
    SCALAR,
    fp8_by_blocks,
    fp8_by_rows,
    nvfp4,
    row_scales,
    whole_scales,
)
from builder.checkpoint.quantized.kv_cache import kv_precision
from builder.checkpoint.quantized.modules import Found, Module, check_lists, quantized_modules
from builder.checkpoint.quantized.numbers import codes, numbers, signed
from builder.checkpoint.quantized.order import grouping
from builder.checkpoint.quantized.patterns import Names
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.rows import ANY, FLOAT
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.errors import CheckpointError, UnsupportedError

PARTS = (
    "weight_packed", "weight_scale", "weight_zero_point", "weight_shape", "weight_g_idx", "weight_global_scale",
    "input_scale", "input_global_scale", "input_zero_point",
)  # fmt: skip
FORMATS = (
    "pack-quantized",
    "int-quantized",
    "float-quantized",
    "naive-quantized",
    "nvfp4-pack-quantized",
)
HARMLESS = ("global_compression_ratio", "version")
STRATEGIES = ("group", "channel", "tensor", "block", "tensor_group")


@dataclass(frozen=True, slots=True)
class _Scheme:
    """How the layers of one group are quantized."""

    targets: Names
    format: str
    bits: int
    kind: str
    """`int` or `float`."""
    symmetric: bool
    strategy: str
    group: int
    block: tuple[int, int]
    rows: str
    """What shares a scale in the rows that are multiplied, as QuantizedWeight has it."""


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    fields.choice("quantization_status", ("compressed",), default="compressed")
    kv = kv_precision(fields)
    fields.require_empty("transform_config", "sparsity_config")
    common = fields.choice("format", (*FORMATS, "mixed-precision"))
    schemes = [_scheme(group, common) for group in fields.sections("config_groups").values()]
    ignored = Names(fields.names("ignore"), "ignore")
    fields.finish(HARMLESS)
    modules = quantized_modules(tensors, PARTS)
    check_lists(
        tensors,
        modules,
        is_excluded=lambda name: ignored.has_linear or ignored.name(name),
        is_target=lambda name: _scheme_of(name, schemes) is not None,
    )
    weights = []
    for module in modules:
        scheme = _scheme_of(module.name, schemes)
        assert scheme is not None, "check_lists lets no other pass"
        weights.append(_weight(module, scheme))
    return Found(modules, weights, kv)


def _scheme_of(name: str, schemes: list[_Scheme]) -> _Scheme | None:
    """Give the scheme that names a layer, or else the one for all linear layers."""
    named = [scheme for scheme in schemes if scheme.targets.name(name)]
    named = named or [scheme for scheme in schemes if scheme.targets.has_linear]
    if any(replace(scheme, targets=named[0].targets) != named[0] for scheme in named):
        raise CheckpointError(
            f"quantization_config has several schemes for {name}, which contradict each other"
        )
    return named[0] if named else None


def _scheme(fields: Fields, common: str) -> _Scheme:
    targets = Names(fields.names("targets"), "targets")
    form = fields.choice("format", FORMATS, default=common)
    weights, rows = fields.section("weights"), fields.section("input_activations")
    fields.require_empty("output_activations")
    fields.finish()
    if weights is None:
        raise fields.unsupported("weights", None, ("quantized weights",))
    kind = weights.choice("type", ("int", "float"), default="int")
    unsaid = ANY if kind == "int" else FLOAT
    shared = unsaid if rows is None else read_activations(rows)
    strategy = weights.choice("strategy", STRATEGIES, default="tensor")
    group = weights.group("group_size")
    if strategy == "group" and group == CHANNEL:
        strategy = "channel"
    weights.choice("dynamic", (False,), default=False)
    weights.choice("actorder", ("static", "weight", "group", "dynamic"), default="static")
    scheme = _Scheme(
        targets=targets,
        format=form,
        bits=weights.choice("num_bits", (4, 8)),
        kind=kind,
        symmetric=weights.flag("symmetric", default=True),
        strategy=strategy,
        group=group if strategy in ("group", "tensor_group") else CHANNEL,
        block=_block(weights),
        rows=shared,
    )
    weights.finish(HARMLESS_OF_NUMBERS)
    _check_known(scheme)
    return scheme


def _block(weights: Fields) -> tuple[int, int]:
    value = weights.take("block_structure")
    if isinstance(value, str):  # "128x128", as older versions write it
        value = [int(size) for size in value.split("x") if size.isdecimal() and len(size) < 6]
    block = as_block(value)
    if block is None and value is not None:
        raise weights.unsupported("block_structure", value, ("two sizes",))
    return block or (0, 0)


KNOWN = {
    ("pack-quantized", "int", 4): (("group", "channel", "tensor"), (True, False)),
    ("pack-quantized", "int", 8): (("group", "channel", "tensor"), (True,)),
    ("int-quantized", "int", 8): (("channel", "tensor"), (True,)),
    ("naive-quantized", "int", 8): (("channel", "tensor"), (True,)),
    ("float-quantized", "float", 8): (("channel", "tensor", "block"), (True,)),
    ("naive-quantized", "float", 8): (("channel", "tensor", "block"), (True,)),
    ("nvfp4-pack-quantized", "float", 4): (("tensor_group",), (True,)),
}
"""Strategies, and whether zero points are 0, of each format that is read."""


def _check_known(scheme: _Scheme) -> None:
    strategies, symmetric = KNOWN.get((scheme.format, scheme.kind, scheme.bits), ((), ()))
    is_whole = scheme.strategy != "block" or scheme.block != (0, 0)
    is_group = scheme.strategy != "tensor_group" or scheme.group == NVFP4_GROUP
    if scheme.strategy in strategies and scheme.symmetric in symmetric and is_whole and is_group:
        return
    points = "" if scheme.symmetric else " with zero points"
    known = "; ".join(f"{form} {kind}{bits}" for form, kind, bits in KNOWN)
    raise UnsupportedError(
        f"quantization_config: {scheme.format} {scheme.kind}{scheme.bits}{points} by {scheme.strategy} is not supported; "
        f"supported: {known}, symmetric but for int4"
    )


def _weight(module: Module, scheme: _Scheme) -> QuantizedWeight:
    if scheme.format == "nvfp4-pack-quantized":
        return nvfp4(
            module,
            "weight_packed",
            "weight_global_scale",
            of_file=lambda divisor: 1 / divisor,
            rows=scheme.rows,
            row_scale="input_global_scale",
        )
    if scheme.kind == "float":
        if scheme.strategy == "block":
            return fp8_by_blocks(module, "weight_scale", scheme.block, scheme.rows)
        return fp8_by_rows(module, "weight_scale", scheme.rows)
    return (
        _packed(module, scheme)
        if scheme.format == "pack-quantized"
        else _plain(module, scheme.rows)
    )


def _plain(module: Module, rows: str) -> QuantizedWeight:
    weight, size_out, size_in = module.matrix("weight", ("I8",))
    scales, read_scales = whole_scales(module, "weight_scale", size_out)
    zeros = module.maybe("weight_zero_point", ("I8",), *SCALAR, (size_out,), (size_out, 1))

    def load() -> Parts:
        if zeros is not None and numbers(zeros).any():
            raise CheckpointError(
                f"tensor {zeros.name} has zero points that are not 0, but quantization_config says symmetric"
            )
        return numbers(weight), read_scales()

    return QuantizedWeight(
        name=weight.name,
        format="int8",
        group=CHANNEL,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        rows=rows,
        row_scales=row_scales(module, rows, size_in),
    )


def _packed(module: Module, scheme: _Scheme) -> QuantizedWeight:
    words, size_out, width = module.matrix("weight_packed", ("I32",))
    together, bits = 32 // scheme.bits, scheme.bits
    size_in = _size_in(module, words, together)
    count = num_groups(size_in, scheme.group)
    shapes = ((size_out, count), *(SCALAR if scheme.strategy == "tensor" else ((size_out,),)))
    scales = module.part("weight_scale", FLOATS, *(shapes if count == 1 else shapes[:1]))
    named = module.maybe("weight_g_idx", ("I32", "I64"), (size_in,))
    order = grouping(named, size_in, scheme.group)
    tall = -(-size_out // together)
    zeros = None if scheme.symmetric else module.part("weight_zero_point", ("I32",), (tall, count))

    def read_scales() -> Float32:
        stored = numbers(scales).reshape(-1, count)
        return np.ascontiguousarray(np.broadcast_to(stored, (size_out, count))[:, order.groups])

    def load() -> Parts:
        lifted = order.in_runs(codes(numbers(words), bits)[:, :size_in])
        if zeros is None:
            return signed(lifted, bits), read_scales()
        points = codes(numbers(zeros).T, bits)[:, :size_out].T[:, order.groups]
        return lifted.astype(ml_dtypes.uint4), read_scales(), points.astype(ml_dtypes.uint4)

    assert width == words.shape[1]
    return QuantizedWeight(
        name=f"{module.name}.weight",
        format=f"int{bits}" if scheme.symmetric else "uint4",
        group=scheme.group,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        rows=scheme.rows,
        row_scales=replace(row_scales(module, scheme.rows, size_in), order=order.row_scales.order),
    )


def _size_in(module: Module, words: Tensor, together: int) -> int:
    """Read how many inputs the last word of a row may be cut to.

    Raises:
        CheckpointError: the shape does not fit the words.
    """
    shape = module.part("weight_shape", ("I64", "I32"), (2,))
    size_out, size_in = map(int, numbers(shape))
    if size_out != words.shape[0] or -(-size_in // together) != words.shape[1]:
        raise CheckpointError(
            f"tensor {shape.name} says {size_out} x {size_in}, which does not fit {words.name} of shape {words.shape}"
        )
    return size_in
