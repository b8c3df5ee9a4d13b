"""What precision each linear layer has in a lowered graph, read from the operations and element types that it consists of."""

import onnx_ir as ir

from builder.errors import BuildError
from builder.graph.patterns import operand
from builder.graph.rounding import rounding_of
from builder.quant import name_of
from builder.quant.plan import BFLOAT16, FLOAT32

INTEGER = "MatMulNBits"
"""The operation of ONNX Runtime that multiplies integers."""


def realized_precisions(model: ir.Model) -> dict[str, str]:
    """Name the precision of every linear layer, by its weight.

    Raises:
        BuildError: a layer multiplies by no weight.
    """
    found: dict[str, str] = {}
    for node in model.graph:
        if node.op_type in ("Gemm", INTEGER):
            weight, precision = _weight_of(node)
            found[str(weight.name).removesuffix(".blocks").removesuffix(".packed")] = precision
    return found


def _weight_of(node: ir.Node) -> tuple[ir.Value, str]:
    """Give the initializer with the numbers of a layer's weight, and the precision of the layer."""
    weight = operand(node, 1)
    maker, precision = weight.producer(), "int8" if node.op_type == INTEGER else FLOAT32
    if maker is not None:
        weight = operand(maker, 0)
        precision = BFLOAT16 if maker.op_type == "Cast" else _format_of(maker, node)
    if not weight.is_initializer():
        raise BuildError(f"a {node.op_type} in the lowered graph multiplies by no weight")
    return weight, precision


def _format_of(dequantize: ir.Node, gemm: ir.Node) -> str:
    """Name the format of a weight behind a DequantizeLinear, whose scales may be widened before."""
    numbers, scale = operand(dequantize, 0), operand(dequantize, 1)
    widening = scale.producer()
    stored = scale if widening is None else operand(widening, 0)
    assert numbers.dtype is not None
    assert stored.dtype is not None
    return name_of(numbers.dtype.name, stored.dtype.name, rounding_of(gemm).kind)
