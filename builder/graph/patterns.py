"""Find one's way in a graph: who makes a value, and who reads it, through operations that only rename axes."""

from collections.abc import Iterable, Iterator

import onnx_ir as ir

from plugins.quantize import spec as quantize

VIEWS = ("Reshape", "Unsqueeze", "Squeeze")
"""Operations that only rename the axes of rows."""
PASSED = (*VIEWS, quantize.DYNAMIC, quantize.FP4, "QuantizeLinear", "DequantizeLinear")
"""Those, and what only says how the reader of a value rounds it."""


def source(value: ir.Value) -> ir.Value:
    """Follow a value back through views and roundings."""
    while (node := value.producer()) is not None and is_passed(node):
        value = operand(node, 0)
    return value


def is_passed(node: ir.Node) -> bool:
    """Tell whether a node is a view, or only says how the reader of a value rounds and orders it."""
    found = factors_of(node) if node.op_type == "Mul" else order_of(node)
    return node.op_type in PASSED or found is not None


def factors_of(node: ir.Node) -> ir.Value | None:
    """Give the numbers `[in]`, one of each input, that a Mul multiplies rows with; None if it is no such Mul."""
    if node.op_type != "Mul" or not (factors := operand(node, 1)).is_initializer():
        return None
    return factors if factors.shape is not None and len(factors.shape) == 1 else None


def order_of(node: ir.Node) -> ir.Value | None:
    """Give the order `[in]` that a Gather puts the numbers of rows in; None if it is no such Gather."""
    if node.op_type != "Gather" or node.attributes.get_int("axis", 0) != 1:
        return None
    return operand(node, 1) if operand(node, 1).is_initializer() else None


def readers(value: ir.Value) -> Iterator[ir.Node]:
    """Give the operations that read a value, through views and roundings."""
    for node, index in value.uses():
        if is_passed(node) and index == 0:
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


def table_lookups(nodes: Iterable[ir.Node]) -> list[ir.Node]:
    """List the nodes that look rows up in a weight, such as an embedding table."""
    return [
        node for node in nodes if node.op_type == "Gather" and operand(node, 0).is_initializer()
    ]
