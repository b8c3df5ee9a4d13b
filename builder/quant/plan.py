"""Which layers of a graph get which format."""

from dataclasses import dataclass

import onnx_ir as ir

from builder.graph.graph import Graph


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """The format of each weight that changes its precision; all others stay float."""

    requested: str
    layers: dict[str, str]


def plan_quantization(graph: Graph, format_name: str) -> QuantPlan:
    """Give every linear layer the same format, the head included.

    An embedding table is quantized only if it is also the head: the two share one tensor.
    """
    if format_name == "none":
        return QuantPlan("float32", {})
    weights = {weight.name: format_name for weight in linear_weights(graph.model) if weight.name}
    return QuantPlan(format_name, weights)


def linear_weights(model: ir.Model) -> list[ir.Value]:
    """List the weights `[out, in]` that are multiplied in linear layers, once each, in graph order."""
    found: dict[str | None, ir.Value] = {}
    for node in model.graph:
        if node.op_type == "Gemm" and (weight := node.inputs[1]) and weight.is_initializer():
            found.setdefault(weight.name, weight)
    return list(found.values())
