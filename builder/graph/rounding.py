"""What a graph says of the rows that a Gemm multiplies: how they are rounded, and what they are multiplied with before.

Rows become `Gather(rows, order)`, `Mul(rows, factors)`, then one of QuantizeLinear and DequantizeLinear with the same scale, QuantizeDynamic, or
QuantizeFP4; each may be missing.
"""

from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from builder.checkpoint import rows as kinds
from builder.graph.patterns import VIEWS, factors_of, operand, order_of
from plugins.quantize import spec

FREE = "rows"
"""Metadata of a weight's DequantizeLinear: FLOAT where no target may round the rows that it is multiplied with."""


@dataclass(frozen=True, slots=True)
class Rounding:
    """How rows are rounded."""

    kind: str = kinds.ANY
    """One of `checkpoint/rows.py`."""
    element: ir.DataType | None = None
    """What rows of a fixed scale, or as they come, consist of."""
    group: int = 0
    """Numbers of a row that share a scale; 0 for all."""
    scale: float = 0.0
    """The fixed one."""
    factors: ir.Value | None = None
    """Numbers `[in]` that rows are multiplied with first."""
    order: ir.Value | None = None
    """Which of its numbers `[in]` a row consists of, before all else."""


def rounding_of(gemm: ir.Node) -> Rounding:
    """Read how the rows of a Gemm are rounded."""
    value = operand(gemm, 0)
    found = Rounding(_kind_of_weight(operand(gemm, 1)))
    while (node := value.producer()) is not None:
        if node.op_type == "DequantizeLinear":
            found = _fixed(node)
            node = operand(node, 0).producer()
            assert node is not None, "rows are quantized before they are dequantized"
        elif node.op_type == spec.DYNAMIC:
            group = node.attributes.get_int("block_size", 0)
            kind = kinds.BLOCK if group else kinds.TOKEN
            found = Rounding(kind, ir.DataType.FLOAT8E4M3FN, group)
        elif node.op_type == spec.FP4:
            scale = _number(operand(node, 1))
            found = Rounding(kinds.SIXTEEN, ir.DataType.FLOAT4E2M1, spec.GROUP_E2M1, scale)
        elif (factors := factors_of(node)) is not None:
            found = replace(found, factors=factors)
        elif (order := order_of(node)) is not None:
            return replace(found, order=order)
        elif node.op_type not in VIEWS:
            break
        value = operand(node, 0)
    return found


def _kind_of_weight(weight: ir.Value) -> str:
    node = weight.producer()
    return kinds.ANY if node is None else str(node.metadata_props.get(FREE, kinds.ANY))


def _fixed(node: ir.Node) -> Rounding:
    element = operand(node, 0).dtype
    assert element is not None
    return Rounding(kinds.TENSOR, element, 0, _number(operand(node, 1)))


def _number(value: ir.Value) -> float:
    assert value.const_value is not None, "scales of rows are known when a model is compiled"
    return float(value.const_value.numpy().astype(np.float32).reshape(()))
