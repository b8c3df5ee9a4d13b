"""Linear layers of 8 or 4 bits become ONNX Runtime's MatMulNBits.

1. `Gemm(x, DequantizeLinear(packed, scale, zero?), bias?)` with transB, integers, and blocks along the inner dimension
   becomes `MatMulNBits(x, blocks, scale, bias?)`. Floats of few bits stay: their rows must not be rounded to int8.
2. `blocks` is the unsigned form `[out, groups, group]` that the kernel takes: packed - zero + 128, padded with 128.
   4-bit weights are kept in 8 bits too: one product and one lookup serve all formats.

The kernel rounds x to int8 per group (accuracy level 4): at one row it is 1.4 times as fast as float32 and
25 times as fast as its own float form, whose results also depend on the number of rows.
"""

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.graph.emit import lazy_weight

MICROSOFT = "com.microsoft"
OFFSET = 128
"""Zero point that MatMulNBits assumes for 8 bits."""
INTEGERS = (ir.DataType.INT8, ir.DataType.INT4, ir.DataType.UINT4)


class LowerQuantizedLinear(ir.passes.InPlacePass):
    """See the rules at the top of the file."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite every layer that matches."""
        matched = [node for node in model.graph if node.op_type == "Gemm" and _dequantized(node)]
        for node in matched:
            _rewrite(model.graph, node)
        if matched:
            model.graph.opset_imports[MICROSOFT] = 1
        return ir.passes.PassResult(model, modified=bool(matched))


def blocks_of(graph: ir.Graph, dequantize: ir.Node) -> ir.Value:
    """Give the initializer with the unsigned blocks of a weight, making it at first use."""
    packed, group = dequantize.inputs[0], dequantize.attributes.get_int("block_size", 0)
    zero = dequantize.inputs[2] if len(dequantize.inputs) > 2 else None
    assert packed is not None
    name = f"{str(packed.name).removesuffix('.packed')}.blocks"
    if name in graph.initializers:
        return graph.initializers[name]
    source = packed.const_value
    assert source is not None
    size_out, size_in = (int(size) for size in source.shape)  # type: ignore[arg-type]
    shape = (size_out, -(-size_in // group), group)
    value = lazy_weight(name, lambda: _unsigned(source, zero, shape), ir.DataType.UINT8, shape)
    graph.register_initializer(value)
    return value


def dequantize_of(value: ir.Value | None) -> ir.Node | None:
    """Give the blocked DequantizeLinear of a weight of integers that produces `value`, if it is one."""
    node = value.producer() if value is not None else None
    if node is None or node.op_type != "DequantizeLinear" or node.inputs[0] is None:
        return None
    is_blocked = (
        node.attributes.get_int("block_size", 0) > 0 and node.attributes.get_int("axis", 1) == 1
    )
    is_weight = node.inputs[0].is_initializer() and node.inputs[0].dtype in INTEGERS
    return node if is_blocked and is_weight else None


def _dequantized(node: ir.Node) -> ir.Node | None:
    return dequantize_of(node.inputs[1]) if node.attributes.get_int("transB", 0) else None


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    dequantize = _dequantized(node)
    assert dequantize is not None
    packed, scale = dequantize.inputs[0], dequantize.inputs[1]
    assert packed is not None
    assert packed.shape is not None
    group = dequantize.attributes.get_int("block_size", 0)
    size_out, size_in = (int(size) for size in packed.shape)  # type: ignore[arg-type]
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    inputs = [node.inputs[0], blocks_of(graph, dequantize), scale, None, None, bias]
    attributes = {
        "K": size_in,
        "N": size_out,
        "bits": 8,
        "block_size": group,
        "accuracy_level": 4,
    }
    new = ir.node(
        "MatMulNBits", inputs if bias is not None else inputs[:3], attributes, domain=MICROSOFT
    )
    _replace(graph, node, new)


def _replace(graph: ir.Graph, old: ir.Node, new: ir.Node) -> None:
    value, result = old.outputs[0], new.outputs[0]
    result.name, result.shape, result.type = value.name, value.shape, value.type
    graph.insert_before(old, new)
    value.replace_all_uses_with(result, replace_graph_outputs=True)
    graph.remove(old, safe=True)


def _unsigned(
    packed: ir.TensorProtocol, zero: ir.Value | None, shape: tuple[int, int, int]
) -> NDArray[np.uint8]:
    numbers = packed.numpy().astype(np.int8, copy=False)
    blocks = np.full((shape[0], shape[1] * shape[2]), OFFSET, np.uint8)
    # Adding 128 modulo 256 to the bytes of an int8 is the shift, without a wider copy.
    np.add(numbers.view(np.uint8), np.uint8(OFFSET), out=blocks[:, : numbers.shape[1]])
    if zero is not None:
        assert zero.const_value is not None
        zeros = zero.const_value.numpy().astype(np.uint8)
        blocks[:, : numbers.shape[1]] -= np.repeat(zeros, shape[2], axis=1)[:, : numbers.shape[1]]
    return blocks.reshape(shape)
