"""Quantize a graph: put each weight of the plan in its stored form, and give its readers what that stands for.

1. A weight `w` of a format becomes `w.packed`, `w.scale` and, where the format has them, `w.zero`, behind one
   DequantizeLinear.
2. A weight of bfloat16 becomes `w.packed` behind one Cast.
Packing happens when the weight is written out, once for all parts; a weight that comes packed is read instead.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.graph.emit import lazy_weight
from builder.graph.graph import Graph, QuantizedGraph
from builder.quant import FORMATS
from builder.quant.groups import CHANNEL, Parts, num_groups
from builder.quant.plan import BFLOAT16, Precision, QuantPlan


def quantize(graph: Graph, plan: QuantPlan) -> QuantizedGraph:
    """Apply a plan in place; the graph must not be used afterwards."""
    for name, precision in plan.layers.items():
        weight = graph.model.graph.initializers.pop(name)
        read = plan.parts.get(name) or _packing(weight, precision)
        node = _narrow(weight) if precision.name == BFLOAT16 else _quantize(weight, precision, read)
        for value in node.inputs:
            assert value is not None
            graph.model.graph.register_initializer(value)
        graph.model.graph.insert_before(graph.model.graph[0], node)
        weight.replace_all_uses_with(node.outputs[0])
    return QuantizedGraph(graph.model, graph.config, plan.requested)


class PackedOnce:
    """Packs a weight at the first part asked for and keeps the other parts until they are asked for too."""

    def __init__(self, pack: Callable[[], tuple[NDArray[np.generic], ...]]) -> None:
        self._pack = pack
        self._parts: dict[int, NDArray[np.generic]] = {}

    def part(self, index: int) -> NDArray[np.generic]:
        """Give one part, packing if it is not there."""
        if index not in self._parts:
            self._parts = dict(enumerate(self._pack()))
        return self._parts.pop(index)


def _narrow(weight: ir.Value) -> ir.Node:
    """Give the Cast of a weight's bfloat16 numbers."""
    source = weight.const_value
    assert source is not None
    packed = lazy_weight(
        f"{weight.name}.packed",
        lambda: source.numpy().astype(ml_dtypes.bfloat16),
        ir.DataType.BFLOAT16,
        _sizes(weight),
    )
    return ir.node("Cast", [packed], {"to": ir.DataType.FLOAT}, name=weight.name)


def _packing(weight: ir.Value, precision: Precision) -> Callable[[], Parts]:
    """Quantize a weight when it is read."""
    source = weight.const_value
    assert source is not None
    return lambda: FORMATS[precision.name].pack(source.numpy(), precision.group)


def _quantize(weight: ir.Value, precision: Precision, read: Callable[[], Parts]) -> ir.Node:
    """Give the DequantizeLinear of a weight's parts."""
    rules, group = FORMATS[precision.name], precision.group
    size_out, size_in = _sizes(weight)
    once = PackedOnce(read)
    element = ir.DataType[precision.name.upper()]
    shape = (size_out,) if group == CHANNEL else (size_out, num_groups(size_in, group))

    def part(suffix: str, index: int, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
        return lazy_weight(
            f"{weight.name}.{suffix}", lambda: once.part(index).reshape(shape), dtype, shape
        )

    inputs = [
        part("packed", 0, element, (size_out, size_in)),
        part("scale", 1, ir.DataType.FLOAT, shape),
    ]
    if rules.HAS_ZERO_POINTS:
        inputs.append(part("zero", 2, element, shape))
    blocks = {"axis": 0} if group == CHANNEL else {"axis": 1, "block_size": group}
    return ir.node("DequantizeLinear", inputs, blocks, name=weight.name)


def _sizes(weight: ir.Value) -> tuple[int, int]:
    assert weight.shape is not None
    size_out, size_in = (int(size) for size in weight.shape)  # type: ignore[arg-type]
    return size_out, size_in
