"""A lookup in a quantized table dequantizes the rows it looks up instead of the table.

1. `Gather(DequantizeLinear(packed, scale, zero?), ids)` along the first axis becomes a gather of the rows' blocks
   and scales, `(blocks - 128) * scale`, reshaped to `[T, in]`.
2. The blocks are those of `lower_quantized_linear`, so that a tied head shares them.
"""

import onnx_ir as ir

from builder.graph.emit import Emitter
from builder.graph.passes.lower_quantized_linear import OFFSET, blocks_of, dequantize_of


class LowerQuantizedGather(ir.passes.InPlacePass):
    """See the rules at the top of the file."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite every lookup that matches."""
        matched = [
            node
            for node in model.graph
            if node.op_type == "Gather"
            and node.attributes.get_int("axis", 0) == 0
            and dequantize_of(node.inputs[0])
        ]
        for node in matched:
            _rewrite(model.graph, node)
        return ir.passes.PassResult(model, modified=bool(matched))


def _rewrite(graph: ir.Graph, node: ir.Node) -> None:
    dequantize = dequantize_of(node.inputs[0])
    assert dequantize is not None
    packed, scale, ids = dequantize.inputs[0], dequantize.inputs[1], node.inputs[1]
    assert packed is not None
    assert packed.shape is not None
    blocks = blocks_of(graph, dequantize)
    size_in = int(packed.shape[1])  # type: ignore[arg-type]
    emit = Emitter()
    rows = emit("Cast", emit("Gather", blocks, ids, axis=0), to=ir.DataType.FLOAT)
    steps = emit("Sub", rows, emit("Constant", value_float=float(OFFSET)))
    scales = emit("Unsqueeze", emit("Gather", scale, ids, axis=0), emit.ints(-1))
    wide = emit("Reshape", emit("Mul", steps, scales), emit.ints(0, -1))
    narrow = emit("Slice", wide, emit.ints(0), emit.ints(size_in), emit.ints(1))
    graph.insert_before(node, emit.nodes)
    node.outputs[0].replace_all_uses_with(narrow)
    graph.remove(node, safe=True)
