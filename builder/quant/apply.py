"""Quantize a graph: put each weight of the plan in its stored form, and give its readers what that stands for.

1. A weight `w` of a format becomes `w.packed`, `w.scale` and, where the format has them, `w.zero`, behind one
   DequantizeLinear. Scales that are no float32 are widened before: E4M3 by a DequantizeLinear with `w.whole`, the scale of
   the tensor; E8M0 by a Cast.
2. A weight of bfloat16 becomes `w.packed` behind one Cast.
3. Rows that a format rounds are rounded before they are multiplied (`rows.py`).
Packing happens when the weight is written out, once for all parts, which are checked then; a weight that comes packed is
read instead.
"""

from collections.abc import Callable

import ml_dtypes
import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.checkpoint.groups import CHANNEL, num_groups
from builder.graph.emit import lazy_weight
from builder.graph.graph import Graph, QuantizedGraph
from builder.graph.rounding import FREE
from builder.quant import FORMATS
from builder.quant.groups import Parts
from builder.quant.plan import BFLOAT16, Precision, QuantPlan
from builder.quant.rows import round_rows
from builder.quant.validate import check_scales, check_weight

E8M0_OPSET = 24
"""The first that casts scales of E8M0."""


def quantize(graph: Graph, plan: QuantPlan) -> QuantizedGraph:
    """Apply a plan in place; the graph must not be used afterwards."""
    round_rows(graph.model, plan)
    for name, precision in plan.layers.items():
        weight = graph.model.graph.initializers.pop(name)
        read = plan.parts.get(name) or _packing(weight, precision)
        nodes = (
            _narrow(weight) if precision.name == BFLOAT16 else _quantize(weight, precision, read)
        )
        for value in (value for node in nodes for value in node.inputs):
            assert value is not None
            if value.const_value is not None:
                graph.model.graph.register_initializer(value)
        graph.model.graph.insert_before(graph.model.graph[0], nodes)
        weight.replace_all_uses_with(nodes[-1].outputs[0])
        if precision.name in FORMATS and FORMATS[precision.name].SCALE == "FLOAT8E8M0":
            _raise_opset(graph.model, E8M0_OPSET)
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


def _raise_opset(model: ir.Model, version: int) -> None:
    """Set the version of the standard operations, in the bodies of functions too: they can't be inlined otherwise."""
    model.graph.opset_imports[""] = version
    for function in model.functions.values():
        function.opset_imports[""] = version


def _narrow(weight: ir.Value) -> list[ir.Node]:
    """Give the Cast of a weight's bfloat16 numbers."""
    source = weight.const_value
    assert source is not None
    packed = lazy_weight(
        f"{weight.name}.packed",
        lambda: source.numpy().astype(ml_dtypes.bfloat16),
        ir.DataType.BFLOAT16,
        _sizes(weight),
    )
    return [ir.node("Cast", [packed], {"to": ir.DataType.FLOAT}, name=weight.name)]


def _quantize(weight: ir.Value, precision: Precision, read: Callable[[], Parts]) -> list[ir.Node]:
    """Give the DequantizeLinear of a weight's parts, and before it what widens its scales."""
    rules, group = FORMATS[precision.name], precision.group
    size_out, size_in = _sizes(weight)
    once = PackedOnce(read)
    element, scale_type = ir.DataType[rules.ELEMENT], ir.DataType[rules.SCALE]
    shape = (size_out,) if group == CHANNEL else (size_out, num_groups(size_in, group))

    def part(suffix: str, index: int, dtype: ir.DataType, shape: tuple[int, ...]) -> ir.Value:
        return lazy_weight(
            f"{weight.name}.{suffix}", lambda: once.part(index).reshape(shape), dtype, shape
        )

    scales, nodes = part("scale", 1, scale_type, shape), []
    if scale_type == ir.DataType.FLOAT8E4M3FN:
        whole = part("whole", 2, ir.DataType.FLOAT, ())
        nodes.append(ir.node("DequantizeLinear", [scales, whole], name=f"{weight.name}.scale"))
    elif scale_type == ir.DataType.FLOAT8E8M0:
        to = {"to": ir.DataType.FLOAT}
        nodes.append(ir.node("Cast", [scales], to, name=f"{weight.name}.scale"))
    inputs = [
        part("packed", 0, element, (size_out, size_in)),
        nodes[0].outputs[0] if nodes else scales,
    ]
    if rules.HAS_ZERO_POINTS:
        inputs.append(part("zero", 2, element, shape))
    blocks = {"axis": 0} if group == CHANNEL else {"axis": 1, "block_size": group}
    node = ir.node("DequantizeLinear", inputs, blocks, name=weight.name)
    node.metadata_props[FREE] = rules.ROWS
    return [*nodes, node]


def _packing(weight: ir.Value, precision: Precision) -> Callable[[], Parts]:
    """Quantize a weight when it is read, and check its scales.

    What is returned raises BuildError if the weight holds a number that is none, or a scale is wrong.
    """

    def pack() -> Parts:
        assert weight.const_value is not None
        name, numbers = str(weight.name), weight.const_value.numpy()
        peaks = check_weight(name, numbers, precision.group)
        parts: Parts = FORMATS[precision.name].pack(numbers, precision.group)
        check_scales(name, peaks, parts)
        return parts

    return pack


def _sizes(weight: ir.Value) -> tuple[int, int]:
    assert weight.shape is not None
    size_out, size_in = (int(size) for size in weight.shape)  # type: ignore[arg-type]
    return size_out, size_in
