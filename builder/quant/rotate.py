"""Rotate what the layers of a model exchange, so that none of its numbers stands out and groups of them quantize well.

The hidden states x become x Q with Q orthogonal. An RMSNorm without scales commutes with that, so Q goes into the weights
that write hidden states, its transpose and the scales of the norm into those that read them; the values of each
attention head are rotated likewise between the projections around it. Only weights change: the graph computes the same, and
nothing is rotated when it runs. Method: QuaRot (Ashkboos et al., arXiv:2404.00456), its rotations that cost nothing.
"""

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.graph.emit import lazy_weight
from builder.graph.graph import Graph
from builder.graph.patterns import made_by, operand, readers, table_lookups
from builder.quant.orthogonal import Float32, Orthogonal, orthogonal
from plugins.paged_attention import spec

SEED = 0
AGAIN = ".again"
"""Added to the name of a weight that two layers shared, where each has its own after the rotation: that of the second."""

Change = Callable[[Float32], Float32]


def rotate(graph: Graph) -> bool:
    """Rotate in place; False if some layer does not commute with rotations, and nothing was changed."""
    rotation = _Rotation(graph)
    if not rotation.collect():
        return False
    rotation.apply()
    return True


class _Rotation:
    """Collects what must change in which weight, then changes all of it."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph.model.graph
        self._hidden = orthogonal(graph.config.hidden_size, SEED)
        self._head = orthogonal(graph.config.head_dim, SEED + 1)
        self._changes: list[tuple[ir.Node, int, Change]] = []
        """Reader, the input that is the weight, and how its numbers change."""
        self._norms: dict[ir.Value, None] = {}
        """Scales of norms, in the order of the graph: a set's would change from run to run, and with it the file."""
        self._seen: set[ir.Value] = set()

    def collect(self) -> bool:
        """Follow the hidden states from the embedding on."""
        lookups = table_lookups(self._graph)
        self._changes += [(node, 0, self._hidden.multiply) for node in lookups]
        return bool(lookups) and all(self._follow(node.outputs[0]) for node in lookups)

    def _follow(self, hidden: ir.Value) -> bool:
        """Visit all that reads hidden states."""
        if hidden in self._seen:
            return True
        self._seen.add(hidden)
        return all(self._visit(node, hidden) for node in readers(hidden))

    def _visit(self, node: ir.Node, hidden: ir.Value) -> bool:
        if node.op_type == "RMSNormalization" and node.inputs[0] is hidden:
            scales = operand(node, 1)
            self._norms[scales] = None
            return self._read_normed(node.outputs[0], _numbers(scales))
        if node.op_type != "Add":
            return False
        (other,) = [value for value in node.inputs if value is not None and value is not hidden]
        writer = other.producer()
        if other not in self._seen:
            if writer is None or writer.op_type != "Gemm":
                return False
            self._seen.add(other)
            self._write(writer, self._hidden)
            self._values_of_heads(writer)
        return self._follow(node.outputs[0])

    def _read_normed(self, normed: ir.Value, scales: Callable[[], Float32]) -> bool:
        """Visit the projections of normed hidden states."""
        for node in readers(normed):
            if node.op_type == "Gather":
                if not self._read_normed(node.outputs[0], scales):
                    return False
            elif node.op_type == "Gemm":
                self._changes.append(
                    (node, 1, lambda weight: self._hidden.multiply(weight, scales()))
                )
            else:
                return False
        return True

    def _write(self, gemm: ir.Node, rotation: Orthogonal) -> None:
        """Rotate what a projection gives."""
        self._changes.append((gemm, 1, lambda weight: rotation.multiply(weight.T).T))
        if len(gemm.inputs) > 2 and gemm.inputs[2] is not None:
            self._changes.append((gemm, 2, lambda bias: rotation.multiply(bias[None])[0]))

    def _values_of_heads(self, gemm: ir.Node) -> None:
        """Rotate the values of each head before the output projection of attention."""
        attention = made_by(operand(gemm, 0), spec.NAME)
        values = None if attention is None else made_by(operand(attention, 2), "Gemm")
        if values is None:
            return
        self._write(values, self._head)
        self._changes.append((gemm, 1, self._head.multiply))

    def apply(self) -> None:
        """Give every reader its own weight: one that two shared, as a tied head does, becomes two."""
        changes: dict[tuple[ir.Node, int], list[Change]] = {}
        for node, index, change in self._changes:
            changes.setdefault((node, index), []).append(change)
        made: dict[str, ir.Value] = {}
        for (node, index), steps in changes.items():
            weight = operand(node, index)
            name = str(weight.name) if weight.name not in made else f"{weight.name}{AGAIN}"
            made[name] = _changed(weight, name, steps)
            node.replace_input_with(index, made[name])
        for scales in self._norms:
            made[str(scales.name)] = ones = _changed(scales, str(scales.name), [np.ones_like])
            scales.replace_all_uses_with(ones)
        for name, value in made.items():
            self._graph.initializers.pop(name, None)
            self._graph.register_initializer(value)


def _numbers(value: ir.Value) -> Callable[[], Float32]:
    source = value.const_value
    assert source is not None
    return lambda: source.numpy().astype(np.float32, copy=False)


def _changed(weight: ir.Value, name: str, steps: list[Change]) -> ir.Value:
    """Give a weight whose numbers change when they are read."""
    read = _numbers(weight)

    def changed() -> NDArray[np.float32]:
        numbers = read()
        for step in steps:
            numbers = step(numbers)
        return np.ascontiguousarray(numbers)

    assert weight.shape is not None
    return lazy_weight(name, changed, ir.DataType.FLOAT, weight.shape.numpy())
