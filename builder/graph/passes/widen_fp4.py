"""Weights of E2M1 (FP4) are looked up in a table, for a runtime that stores 4 bits and knows no FP4.

1. `DequantizeLinear(packed, scale)` with `packed` of E2M1 becomes `DequantizeLinear(E4M3(table[packed]), scale)`: the same
   bits as UINT4, and E4M3 holds all sixteen numbers exactly, so that nothing else of the operation changes.

It does not fire on other element types. ONNX Runtime computes all of it once, when a session is opened.
"""

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.graph.emit import Emitter, lazy_weight

CODES = np.arange(16, dtype=np.uint8)


class WidenFP4(ir.passes.InPlacePass):
    """See the rule at the top of the file."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite every weight that matches."""
        matched = [node for node in model.graph if _is_fp4(node)]
        for node in matched:
            _rewrite(model.graph, node)
        return ir.passes.PassResult(model, modified=bool(matched))


def _is_fp4(node: ir.Node) -> bool:
    packed = node.inputs[0] if node.op_type == "DequantizeLinear" else None
    return packed is not None and packed.is_initializer() and packed.dtype == ir.DataType.FLOAT4E2M1


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    packed = node.inputs[0]
    assert packed is not None
    emit = Emitter()
    numbers = emit(
        "Gather", _table(emit), emit("Cast", _codes(graph, packed), to=ir.DataType.INT32)
    )
    wide = emit("Cast", numbers, to=ir.DataType.FLOAT8E4M3FN)
    wide.shape, wide.type = packed.shape, ir.TensorType(ir.DataType.FLOAT8E4M3FN)
    graph.insert_before(node, emit.nodes)
    node.replace_input_with(0, wide)


def _table(emit: Emitter) -> ir.Value:
    numbers = CODES.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
    return emit("Constant", value_floats=numbers.tolist())


def _codes(graph: ir.Graph, packed: ir.Value) -> ir.Value:
    """Put an initializer of the same name and bits, as UINT4, in the place of a weight."""
    source = packed.const_value
    assert source is not None
    assert packed.shape is not None

    def read() -> NDArray[np.generic]:
        return source.numpy().view(np.uint8).astype(ml_dtypes.uint4)

    name = str(packed.name)
    codes = lazy_weight(name, read, ir.DataType.UINT4, packed.shape.numpy())
    graph.initializers.pop(name)
    graph.register_initializer(codes)
    return codes
