"""Quantize a graph: put each weight of the plan in its packed form behind DequantizeLinear.

1. The initializer `w` becomes `w.packed` and `w.scale`.
2. One DequantizeLinear per weight gives every reader of `w` the values that it now has.
Packing happens when the weight is written out, once for both parts.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.graph.graph import Graph, QuantizedGraph
from builder.quant import FORMATS
from builder.quant.plan import QuantPlan


def quantize(graph: Graph, plan: QuantPlan) -> QuantizedGraph:
    """Apply a plan in place; the graph must not be used afterwards."""
    for name, format_name in plan.layers.items():
        _replace(graph.model, name, format_name)
    return QuantizedGraph(graph.model, graph.config, plan.requested)


class PackedOnce:
    """Packs a weight at the first part asked for and keeps the other part until that is asked for too."""

    def __init__(self, pack: Callable[[], tuple[NDArray[np.generic], ...]]) -> None:
        self._pack = pack
        self._parts: dict[int, NDArray[np.generic]] = {}

    def part(self, index: int) -> NDArray[np.generic]:
        """Give one part, packing if it is not there."""
        if index not in self._parts:
            self._parts = dict(enumerate(self._pack()))
        return self._parts.pop(index)


def _replace(model: ir.Model, name: str, format_name: str) -> None:
    rules, graph = FORMATS[format_name], model.graph
    weight = graph.initializers.pop(name)
    source = weight.const_value
    assert source is not None
    assert weight.shape is not None
    size_out, size_in = (int(size) for size in weight.shape)  # type: ignore[arg-type]
    once = PackedOnce(lambda: rules.pack(source.numpy()))
    packed = _initializer(
        f"{name}.packed", ir.DataType.INT8, (size_out, size_in), lambda: once.part(0)
    )
    groups = (size_out, rules.num_groups(size_in))
    scale = _initializer(f"{name}.scale", ir.DataType.FLOAT, groups, lambda: once.part(1))
    graph.register_initializer(packed)
    graph.register_initializer(scale)
    node = ir.node(
        "DequantizeLinear", [packed, scale], {"axis": 1, "block_size": rules.GROUP}, name=name
    )
    graph.insert_before(graph[0], node)
    weight.replace_all_uses_with(node.outputs[0])


def _initializer(
    name: str, dtype: ir.DataType, shape: tuple[int, ...], read: Callable[[], NDArray[np.generic]]
) -> ir.Value:
    tensor = ir.LazyTensor(
        lambda: ir.Tensor(read(), dtype=dtype, name=name),
        dtype=dtype,
        shape=ir.Shape(shape),
        name=name,
    )
    return ir.Value(name=name, shape=ir.Shape(shape), type=ir.TensorType(dtype), const_value=tensor)
