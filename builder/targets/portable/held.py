"""Read the weights of a portable engine back: its external data has them by name.

`w` is a float, `w.packed` one of bfloat16; `w.blocks` are unsigned bytes `[out, groups, group]`, 128 above the numbers of int8
with the scales `w.scale`. Formats of 4 bits are kept in 8 there: int4 comes back as what it is, uint4, whose zero points are taken
off, as int8. Formats that are emulated are in their bits: `w.packed`, `w.scale` and, of NVFP4, `w.whole`.

What is fixed of rows stands in the graph, where QuantizeFP4 and QuantizeDynamic are written out by their definitions: from a layer back, first inputs
lead to the rows that were there before.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.artifact.manifest import EngineRecord
from builder.artifact.store import Artifact
from builder.checkpoint.groups import CHANNEL
from builder.checkpoint.quantized.numbers import codes, numbers
from builder.checkpoint.rows import RowScales
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Tensor
from builder.errors import ArtifactError
from builder.graph.passes.lower_quantized_linear import OFFSET
from builder.graph.patterns import VIEWS, factors_of, operand, order_of
from builder.quant import FORMATS, int4, int8, is_emulated
from builder.quant.groups import Parts
from builder.quant.plan import BFLOAT16, FLOAT32
from builder.targets.held import HeldWeight, Shape, weights_of
from builder.targets.portable.realized import INTEGER

TYPES: dict[str, Any] = {int8.NAME: np.int8, int4.NAME: ml_dtypes.int4}
ROUNDING = (
    *VIEWS, "QuantizeLinear", "DequantizeLinear",
    "Add", "Mul", "Min", "Round", "Div", "Abs",
    "Slice", "Cast", "Pad",
)  # fmt: skip
"""Operations whose first inputs lead from rounded rows to those before: of fixed scales, of QuantizeFP4, of QuantizeDynamic."""


def held_weights(
    artifact: Artifact, engine: EngineRecord, shapes: Mapping[str, Shape]
) -> list[HeldWeight]:
    """List the weights that `shapes` names.

    Raises:
        ArtifactError: the engine has no file of weights.
    """
    stored = read_safetensors(artifact.path(weights_of(engine)))
    rows = _rows_of_weights(ir.load(artifact.path(engine.path)).graph, stored)
    found = (_held(name, shape, stored, engine) for name, shape in shapes.items())
    return [
        replace(weight, rows=rows.get(weight.name, RowScales()))
        for weight in found
        if weight is not None
    ]


def _held(
    name: str, shape: Shape, stored: Mapping[str, Tensor], engine: EngineRecord
) -> HeldWeight | None:
    if (plain := stored.get(name)) is not None:
        return HeldWeight(name, FLOAT32, 0, shape, lambda: (plain.read(),))
    narrow = stored.get(f"{name}.packed")
    if narrow is not None and narrow.stored == BFLOAT16:
        return HeldWeight(
            name, BFLOAT16, 0, shape, lambda: (narrow.read().astype(ml_dtypes.bfloat16),)
        )
    own = engine.realized.get(name, FLOAT32)
    if narrow is not None and is_emulated(own, engine.target):
        return _in_bits(name, own, shape, stored)
    blocks, scales = stored.get(f"{name}.blocks"), stored.get(f"{name}.scale")
    if blocks is None or scales is None:
        return None
    # Its scales may be negative, and a change of signs is exact, but ONNX Runtime's kernel then rounds otherwise.
    precision = int4.NAME if engine.fallbacks.get(name) == int4.NAME else int8.NAME
    read = _signed(blocks, scales, shape[1], TYPES[precision])
    return HeldWeight(name, precision, blocks.shape[2], shape, read)


def _signed(blocks: Tensor, scales: Tensor, size_in: int, dtype: Any) -> Callable[[], Parts]:
    def read() -> Parts:
        lifted = numbers(blocks).reshape(blocks.shape[0], -1)[:, :size_in]
        return (lifted ^ np.uint8(OFFSET)).view(np.int8).astype(dtype), scales.read()

    return read


def _in_bits(name: str, precision: str, shape: Shape, stored: Mapping[str, Tensor]) -> HeldWeight:
    packed, scales, whole = (stored.get(f"{name}.{part}") for part in ("packed", "scale", "whole"))
    assert packed is not None, "who asks has found it"
    if scales is None:
        raise ArtifactError(
            f"the engine has numbers of {name}, but no scales; compile the model again"
        )
    group = CHANNEL if len(scales.shape) < 2 else max(FORMATS[precision].GROUPS)

    def read() -> Parts:
        found = numbers(packed)
        if FORMATS[precision].BITS == 4:
            pairs = codes(found.reshape(1, -1), 4)[:, : shape[0] * shape[1]]
            found = pairs.view(ml_dtypes.float4_e2m1fn).reshape(shape)
        factors = [] if whole is None else [whole.read()]
        return found, numbers(scales).reshape(shape[0], -1), *factors

    return HeldWeight(name, precision, group, shape, read)


def _rows_of_weights(graph: ir.Graph, stored: Mapping[str, Tensor]) -> dict[str, RowScales]:
    """Give what is fixed of the rows of each linear layer, by its weight."""
    found = {}
    for node in graph:
        if node.op_type not in ("Gemm", INTEGER):
            continue
        weight = operand(node, 1)
        while (maker := weight.producer()) is not None:
            weight = operand(maker, 1 if maker.op_type == "Gather" else 0)
        name = str(weight.name).removesuffix(".packed").removesuffix(".blocks")
        found[name] = _rows_of(operand(node, 0), stored)
    return found


def _rows_of(rows: ir.Value, stored: Mapping[str, Tensor]) -> RowScales:
    fixed: ir.Value | None = None
    factors: ir.Value | None = None
    order: ir.Value | None = None
    while (node := rows.producer()) is not None and order is None:
        order = order_of(node)
        if order is None and node.op_type not in ROUNDING:
            break
        fixed = _scale_of(node) if fixed is None else fixed
        factors = factors_of(node) if factors is None else factors
        rows = operand(node, 0)
    return RowScales(
        None if fixed is None else stored[str(fixed.name)].read,
        None if factors is None else stored[str(factors.name)].read,
        None if order is None else _integers(stored[str(order.name)]),
    )


def _integers(tensor: Tensor) -> Callable[[], NDArray[np.int64]]:
    return lambda: numbers(tensor)


def _scale_of(node: ir.Node) -> ir.Value | None:
    """Give the fixed scale that numbers are multiplied by: by DequantizeLinear, or of NVFP4 by a Mul with the scales of sixteens."""
    if node.op_type == "DequantizeLinear":
        return operand(node, 1)
    maker = operand(node, 1).producer() if node.op_type == "Mul" else None
    if maker is None or maker.op_type != "Mul" or not operand(maker, 1).is_initializer():
        return None
    scale = operand(maker, 1)
    return scale if scale.shape is not None and len(scale.shape) == 0 else None
