"""Read patterns in a quantized graph: weights behind DequantizeLinear, views, activations, who reads a value.

It knows ONNX operations and nothing of plans.
"""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.errors import UnsupportedError
from builder.targets.cpu.packing import MOST_ACTIVATIONS, Matrix
from builder.targets.cpu.panels import Parts, padded
from builder.targets.cpu.plan import Form

FORMS = {
    ir.DataType.FLOAT: Form.FLOAT32,
    ir.DataType.BFLOAT16: Form.BFLOAT16,
    ir.DataType.INT8: Form.INT8,
    ir.DataType.INT4: Form.INT4,
    ir.DataType.UINT4: Form.UINT4,
}
"""Stored precision of a weight by its element type."""

VIEWS = ("Reshape", "Unsqueeze", "Squeeze")
"""Operations that only rename the axes of rows."""


def source(value: ir.Value) -> ir.Value:
    """Follow a value back through views."""
    while (node := value.producer()) is not None and node.op_type in VIEWS:
        assert node.inputs[0] is not None
        value = node.inputs[0]
    return value


def readers(value: ir.Value) -> Iterator[ir.Node]:
    """Give the operations that read a value, through views."""
    for node, index in value.uses():
        if node.op_type in VIEWS and index == 0:
            yield from readers(node.outputs[0])
        else:
            yield node


def made_by(value: ir.Value, op_type: str) -> ir.Node | None:
    """Give the node that makes a value, if it is of this type."""
    node = source(value).producer()
    return node if node is not None and node.op_type == op_type else None


def operand(node: ir.Node, index: int) -> ir.Value:
    """Give an input that must be there."""
    value = node.inputs[index]
    assert value is not None, f"{node.op_type} has no input {index}"
    return value


def matrix(value: ir.Value) -> Matrix:
    """Describe a weight `[out, in]` of the graph, whichever form it has.

    Raises:
        UnsupportedError: it is no weight.
    """
    node = value.producer()
    parts = [value] if node is None else [part for part in node.inputs if part is not None]
    if not all(part.is_initializer() for part in parts) or parts[0].dtype not in FORMS:
        raise UnsupportedError(f"target cpu can't multiply by {value.name}, which is no weight")
    size_out, size_in = sizes(parts[0])

    def read() -> Parts:
        return tuple(numbers(part).reshape(size_out, -1) for part in parts)

    name, form = str(parts[0].name).removesuffix(".packed"), FORMS[parts[0].dtype]
    group = 0
    if node is not None and node.op_type == "DequantizeLinear":
        group = node.attributes.get_int("block_size", padded(size_in, MOST_ACTIVATIONS))
    return Matrix(name, form, group, size_out, size_in, read)


def gated(node: ir.Node) -> tuple[ir.Node, ir.Node] | None:
    """Give the two Gemms of `silu(gate) * up`, if a Mul is that."""
    for act, other in ((0, 1), (1, 0)):
        up = made_by(operand(node, other), "Gemm")
        inner = made_by(operand(node, act), "Mul")
        gate = silu_of(inner) if inner is not None else None
        if up is not None and gate is not None:
            return gate, up
    return None


def silu_of(node: ir.Node) -> ir.Node | None:
    """Give the Gemm whose result x is turned into x * sigmoid(x) by a Mul, if it is that."""
    for plain, bent in ((0, 1), (1, 0)):
        sigmoid = made_by(operand(node, bent), "Sigmoid")
        if sigmoid is not None and operand(sigmoid, 0) is operand(node, plain):
            return made_by(operand(node, plain), "Gemm")
    return None


def check_rotation(node: ir.Node, head_dim: int) -> None:
    """Refuse a rotary embedding other than of whole heads, halves paired.

    Raises:
        UnsupportedError: there is no kernel for it.
    """
    dim = node.attributes.get_int("rotary_embedding_dim", 0)
    if node.attributes.get_int("interleaved", 0) or dim not in (0, head_dim):
        raise UnsupportedError("target cpu rotates whole heads by halves only")


def sizes(value: ir.Value) -> tuple[int, int]:
    """Give the shape of a matrix."""
    assert value.shape is not None
    size_out, size_in = (int(size) for size in value.shape)  # type: ignore[arg-type]
    return size_out, size_in


def numbers(value: ir.Value) -> NDArray[np.generic]:
    """Read a weight's numbers."""
    assert value.const_value is not None
    return value.const_value.numpy()


def sizes_of_vector(value: ir.Value) -> int:
    """Give the length of a vector."""
    assert value.shape is not None
    return int(value.shape[0])  # type: ignore[arg-type]


def joined_numbers(values: list[ir.Value]) -> NDArray[np.generic]:
    """Read vectors one after another."""
    return np.concatenate([numbers(value) for value in values])
