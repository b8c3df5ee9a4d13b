"""Infer the shape of every value, without reading a weight.

1. While onnx infers, initializers stand as external data that nobody reads: onnx-ir's pass would read the small
   ones, and a weight that can't be read would leave the graph half done.
"""

import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass


class InferShapes(ir.passes.InPlacePass):
    """See the rule at the top of the file."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Infer all shapes; the weights are the same objects afterwards."""
        initializers = list(model.graph.initializers.values())
        weights = [value.const_value for value in initializers]
        try:
            for value, weight in zip(initializers, weights, strict=True):
                assert weight is not None
                assert value.shape is not None
                value.const_value = ir.ExternalTensor(
                    "unread", 0, 0, weight.dtype, shape=value.shape, name=str(value.name)
                )
            return ShapeInferencePass()(model)
        finally:
            for value, weight in zip(initializers, weights, strict=True):
                value.const_value = weight
