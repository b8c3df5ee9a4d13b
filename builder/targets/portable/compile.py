"""Compile for stock ONNX Runtime: inline Forerun's operations, and map quantized layers to its own kernels.

Layers of floats of few bits stay DequantizeLinear and Gemm: ONNX Runtime widens their weights once, when a session is
opened, and multiplies float32 numbers that are exactly theirs. Their rows are rounded by the operations of the graph.

The ONNX file holds no numbers: its weights are external data in `weights/`, by paths relative to the
artifact's folder.
"""

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import (
    CommonSubexpressionEliminationPass,
    InlinePass,
    RemoveUnusedNodesPass,
    RemoveUnusedOpsetsPass,
)

from builder.artifact.config import KVGeometry, KVGroup, ModelConfig
from builder.artifact.manifest import EngineRecord
from builder.artifact.weights import WeightSpec, write_weights
from builder.errors import UnsupportedError
from builder.graph.graph import LoweredGraph, QuantizedGraph
from builder.graph.passes.fold_static_shapes import FoldStaticShapes
from builder.graph.passes.infer_shapes import InferShapes
from builder.graph.passes.lower_quantized_gather import LowerQuantizedGather
from builder.graph.passes.lower_quantized_linear import LowerQuantizedLinear
from builder.graph.passes.widen_fp4 import WidenFP4
from builder.quant import FORMATS, is_emulated
from builder.targets.bindings import binding
from builder.targets.checks import require, require_head_dim, require_one_rank
from builder.targets.compiler import TargetOptions
from builder.targets.portable.realized import realized_precisions
from plugins.paged_attention import spec

NAME = "portable"
DTYPES = ("float32", "bfloat16")
QUANTS = ("none", *(name for name, rules in FORMATS.items() if NAME in rules.TARGETS))
GROUPS = (32, 64)
"""In larger ones ONNX Runtime's kernel gives a row other bits in other company."""
COMPUTE = {
    "float32": "float32 throughout",
    "bfloat16": "bfloat16 weights, widened to float32 when the engine is opened; all else, KV included, float32",
}
QUANTIZED = (
    "{label} weights, each in 8 bits with a float32 scale per group; the activations of their layers are rounded to "
    "int8 per group while they are multiplied; all else, KV included, float32"
)
EMULATION = (
    "emulation of {names}: exactly their weights, kept in their bits and widened to float32 when the engine is opened, and "
    "exactly their activations, multiplied in float32; all else, KV included, float32"
)
LOWERINGS: tuple[ir.passes.PassBase, ...] = (LowerQuantizedGather(), LowerQuantizedLinear())
"""They decide what each layer is."""
EXPANSIONS: tuple[ir.passes.PassBase, ...] = (
    WidenFP4(),
    InlinePass(),
    InferShapes(),
    FoldStaticShapes(),
    CommonSubexpressionEliminationPass(),
    RemoveUnusedNodesPass(),
    RemoveUnusedOpsetsPass(),
)
"""They write out by its definition what ONNX Runtime does not know, and share what is the same; no layer changes."""
MAX_HEAD_DIM = 128
"""Above it ONNX Runtime splits the sum over D by the number of keys, so that a result depends on its batch."""
STORED = {
    ir.DataType.FLOAT: "F32",
    ir.DataType.BFLOAT16: "BF16",
    ir.DataType.UINT8: "U8",
    ir.DataType.INT8: "I8",
    ir.DataType.INT64: "I64",
    ir.DataType.FLOAT8E4M3FN: "F8_E4M3",
    ir.DataType.FLOAT8E8M0: "F8_E8M0",
}
WORDS = {"BF16": np.uint16, "F8_E4M3": np.uint8, "F8_E8M0": np.uint8}
"""Integers that number types are written as."""


def check(config: ModelConfig, options: TargetOptions) -> None:
    """Refuse what ONNX Runtime's CPU kernels can't do.

    Raises:
        UnsupportedError: names the option, and what the target supports.
    """
    require(NAME, "dtype", options.dtype, DTYPES)
    require(NAME, "quant", options.format, QUANTS)
    require(NAME, "--kv", options.kv or "float32", ("float32",))
    if options.quant != "none" and not is_emulated(options.format, NAME):
        require(NAME, "--group", str(options.precision.group or "channel"), tuple(map(str, GROUPS)))
    require_one_rank(NAME, options.tp)
    require_head_dim(NAME, config, MAX_HEAD_DIM)


def groups(quant: str) -> tuple[int, ...]:
    """Give the groups of a format: its own where it is emulated, those of the kernel for all integers."""
    own: tuple[int, ...] = FORMATS[quant].GROUPS
    return own if is_emulated(quant, NAME) else GROUPS


def kv_geometry(config: ModelConfig, block_size: int, options: TargetOptions) -> KVGeometry:  # noqa: ARG001
    """One group of all layers, in float32 whatever the weights are."""
    group = KVGroup(
        tuple(range(config.num_layers)), config.num_kv_heads, config.head_dim, "float32"
    )
    return KVGeometry(block_size, (group,))


def _check_attention(graph: QuantizedGraph) -> None:
    """Refuse attributes that the inlined body of PagedAttention does not read: they would be ignored.

    Raises:
        UnsupportedError: names the attribute.
    """
    for node in graph.model.graph:
        unread = set(node.attributes) - {"scale"} if node.op_type == spec.NAME else set()
        if unread:
            raise UnsupportedError(
                f"target {NAME} does not support PagedAttention with {min(unread)}; use --target cpu"
            )


def lower(graph: QuantizedGraph, kv: KVGeometry) -> LoweredGraph:
    """Run the passes and record what each linear layer became.

    Raises:
        UnsupportedError: attention is of a kind that its body here does not know.
    """
    _check_attention(graph)
    _fix_block_size(graph.model, kv.block_size)
    for lowering in LOWERINGS:
        lowering(graph.model)
    realized = realized_precisions(graph.model)
    for expansion in EXPANSIONS:
        expansion(graph.model)
    return LoweredGraph(graph.model, graph.config, kv, graph.requested, realized)


def compile(  # noqa: A001 - the verb of the Compiler protocol
    graph: LoweredGraph, folder: Path, advance: Callable[[int], None]
) -> EngineRecord:
    """Write `weights/rank0.safetensors` and `engines/portable/rank0.onnx`."""
    path, weights = Path("engines") / NAME / "rank0.onnx", Path("weights") / "rank0.safetensors"
    for relative in (path, weights):
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
    values = list(graph.model.graph.initializers.values())
    ranges = write_weights(folder / weights, [_spec(value) for value in values], advance)
    for value in values:
        _point_to_file(value, weights, ranges[str(value.name)])
    (folder / path).write_bytes(ir.to_proto(graph.model).SerializeToString(deterministic=True))
    return EngineRecord(
        target=NAME,
        rank=0,
        path=path.as_posix(),
        weights=weights.as_posix(),
        inputs=tuple(map(binding, graph.model.graph.inputs)),
        outputs=tuple(map(binding, graph.model.graph.outputs)),
        requested=graph.requested,
        realized=graph.realized,
        compute=_compute(graph),
        emulated=_emulated(graph),
        fallbacks={},
    )


def tools() -> dict[str, str]:
    """Give the versions that decide the bytes of the engine."""
    return {name: version(name) for name in ("onnx", "onnx-ir", "onnxruntime")}


def _fix_block_size(model: ir.Model, block_size: int) -> None:
    """Make the block size of every cache a fixed number; only the number of blocks stays free."""
    for value in [*model.graph.inputs, *model.graph.outputs]:
        if value.shape is not None:
            sizes = [block_size if str(size) == "block" else size for size in value.shape]
            value.shape = ir.Shape(sizes)


def _emulated(graph: LoweredGraph) -> tuple[str, ...]:
    """Name the formats whose numbers are multiplied in float32."""
    return tuple(sorted(name for name in set(graph.realized.values()) if is_emulated(name, NAME)))


def _compute(graph: LoweredGraph) -> str:
    """Say in what precision the engine computes."""
    if names := _emulated(graph):
        return EMULATION.format(names=" and ".join(names))
    return COMPUTE.get(graph.requested, QUANTIZED.format(label=graph.requested))


def _spec(value: ir.Value) -> WeightSpec:
    tensor = value.const_value
    assert tensor is not None
    name, shape = str(value.name), tuple(int(size) for size in tensor.shape)  # type: ignore[arg-type]
    if tensor.dtype == ir.DataType.UINT4:
        num_bytes = -(-int(np.prod(shape)) // 2)
        return WeightSpec(
            name, "U8", (num_bytes,), lambda: np.frombuffer(tensor.tobytes(), np.uint8)
        )
    stored = STORED[tensor.dtype]
    if stored in WORDS:
        return WeightSpec(name, stored, shape, lambda: tensor.numpy().view(WORDS[stored]))
    return WeightSpec(name, stored, shape, tensor.numpy)


def _point_to_file(value: ir.Value, path: Path, where: tuple[int, int]) -> None:
    tensor = value.const_value
    assert tensor is not None
    assert value.shape is not None
    value.const_value = ir.ExternalTensor(
        path.as_posix(),
        where[0],
        where[1],
        tensor.dtype,
        shape=value.shape,
        name=str(value.name),
    )
