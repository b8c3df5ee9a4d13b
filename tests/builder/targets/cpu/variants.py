"""Rewrite the graph of a tiny Llama to what other architectures are made of, before it is quantized."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import pytest

from builder import archs
from builder.artifact.store import Artifact
from builder.graph.graph import Graph
from tests.built import compile_model
from tests.models import tiny_llama

Rewrite = Callable[[Graph], None]


def compile_variant(
    folder: Path, rewrites: Sequence[Rewrite], *, sizes: dict[str, Any], **options: Any
) -> Artifact:
    """Compile a tiny Llama of these sizes whose graph is rewritten."""
    build = archs.build_graph

    def rewritten(*arguments: Any) -> Graph:
        graph = build(*arguments)
        for rewrite in rewrites:
            rewrite(graph)
        return graph

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archs, "build_graph", rewritten)
        return compile_model(tiny_llama(folder / "model", **sizes), folder / "built", **options)


def attributes(op_type: str, **values: Any) -> Rewrite:
    """Set attributes of all nodes of a type."""

    def rewrite(graph: Graph) -> None:
        for node in graph.model.graph:
            if node.op_type == op_type:
                for name, value in values.items():
                    node.attributes[name] = ir.convenience.convert_attribute(name, value)

    return rewrite


def partial_rope(dims: int, *, interleaved: bool) -> Rewrite:
    """Turn the first `dims` dimensions of a head alone."""

    def rewrite(graph: Graph) -> None:
        for name in ("rope.cos", "rope.sin"):
            table = graph.model.graph.initializers[name]
            assert table.const_value is not None
            values = np.ascontiguousarray(table.const_value.numpy()[:, : dims // 2])
            table.const_value = ir.Tensor(values, name=name)
            table.shape = ir.Shape(values.shape)
        marks = {"rotary_embedding_dim": dims, "interleaved": int(interleaved)}
        attributes("RotaryEmbedding", **marks)(graph)

    return rewrite


def layer_norms(graph: Graph) -> None:
    """Make LayerNorms of RMSNorms, with a bias but for the last."""
    norms = [node for node in graph.model.graph if node.op_type == "RMSNormalization"]
    for index, node in enumerate(norms):
        x, weight = node.inputs
        inputs = [x, weight]
        if node is not norms[-1]:
            size = graph.config.hidden_size
            values = np.random.default_rng(index).normal(size=size).astype(np.float32) / 5
            inputs.append(_initializer(graph, f"norm.{index}.bias", values))
        epsilon = node.attributes.get_float("epsilon", 0)
        _replace(graph, node, "LayerNormalization", inputs, {"axis": -1, "epsilon": epsilon})


def activations(op_type: str, **values: Any) -> Rewrite:
    """Put one node of a type in the place of each SiLU."""

    def rewrite(graph: Graph) -> None:
        for node in list(graph.model.graph):
            if node.op_type != "Sigmoid":
                continue
            (product,) = (use.node for use in node.outputs[0].uses())
            _replace(graph, product, op_type, [node.inputs[0]], values)
            graph.model.graph.remove(node, safe=True)

    return rewrite


def ungated(graph: Graph) -> None:
    """Leave out the factor of every gate."""
    for node in list(graph.model.graph):
        up = node.inputs[1].producer() if node.op_type == "Mul" and node.inputs[1] else None
        if up is not None and up.op_type == "Gemm":
            node.outputs[0].replace_all_uses_with(node.inputs[0])
            graph.model.graph.remove([node, up], safe=True)


def _initializer(graph: Graph, name: str, values: np.ndarray[Any, Any]) -> ir.Value:
    value = ir.Value(
        name=name,
        shape=ir.Shape(values.shape),
        type=ir.TensorType(ir.DataType.FLOAT),
        const_value=ir.Tensor(values, name=name),
    )
    graph.model.graph.register_initializer(value)
    return value


def _replace(
    graph: Graph,
    node: ir.Node,
    op_type: str,
    inputs: list[ir.Value | None],
    values: dict[str, Any],
) -> None:
    new = ir.node(op_type, inputs, values)
    new.outputs[0].name = f"{node.outputs[0].name}.new"
    graph.model.graph.insert_before(node, new)
    node.outputs[0].replace_all_uses_with(new.outputs[0])
    graph.model.graph.remove(node, safe=True)
