"""Read patterns in a quantized graph: weights behind DequantizeLinear, activations, rotations, attributes of attention.

It knows ONNX operations and nothing of plans.
"""

from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.checkpoint import rows as kinds
from builder.errors import UnsupportedError
from builder.graph.patterns import made_by, operand, source
from builder.graph.rounding import Rounding, rounding_of
from builder.quant import name_of
from builder.targets.cpu.packing import MOST_ACTIVATIONS, Matrix
from builder.targets.cpu.panels import Parts, padded
from builder.targets.cpu.plan import Activation, Form
from plugins.paged_attention import spec

FORMS = {
    ir.DataType.FLOAT: Form.FLOAT32,
    ir.DataType.BFLOAT16: Form.BFLOAT16,
    ir.DataType.INT8: Form.INT8,
    ir.DataType.INT4: Form.INT4,
    ir.DataType.UINT4: Form.UINT4,
}
"""Stored precision of a weight by its element type."""

EMULATED = (ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT4E2M1)
"""Element types that are widened to float32, which holds their numbers times their scales."""

ROUNDED_FREELY = Rounding()
"""Of weights that no rows are multiplied with, such as tables."""

GELUS = {"none": Activation.GELU, "tanh": Activation.GELU_TANH}
"""Kinds of GELU, by the value of ONNX's attribute `approximate`."""


class AttentionAttributes(TypedDict):
    """The attributes of PagedAttention that an operation has under the same names."""

    scale: float
    window: int
    soft_cap: float


def multiplied(gemm: ir.Node) -> Matrix:
    """Describe what a Gemm multiplies by, and how its rows are rounded.

    Raises:
        UnsupportedError: it is no weight, or its rows are rounded to what it has no kernel for.
    """
    return matrix(operand(gemm, 1), rounding_of(gemm))


def matrix(value: ir.Value, rounding: Rounding = ROUNDED_FREELY) -> Matrix:
    """Describe a weight `[out, in]` of the graph, whichever form it has.

    Raises:
        UnsupportedError: it is no weight, or its rows are rounded to what it has no kernel for.
    """
    node = value.producer()
    packed = value if node is None else operand(node, 0)
    is_exact = packed.dtype == ir.DataType.INT8 and rounding.kind == kinds.FLOAT
    if node is not None and (packed.dtype in EMULATED or is_exact):
        return _emulated(node, packed, rounding)
    is_static = packed.dtype == ir.DataType.INT8 and rounding.element == ir.DataType.INT8
    if rounding.kind != kinds.ANY and not is_static:
        raise UnsupportedError(
            f"target cpu can't multiply {value.name} by rows with a scale per {rounding.kind}"
        )
    parts = [value] if node is None else [part for part in node.inputs if part is not None]
    if not all(part.is_initializer() for part in parts) or packed.dtype not in FORMS:
        raise UnsupportedError(f"target cpu can't multiply by {value.name}, which is no weight")
    size_out, size_in = sizes(packed)

    def read() -> Parts:
        return tuple(numbers(part).reshape(size_out, -1) for part in parts)

    name, form, group = str(packed.name).removesuffix(".packed"), FORMS[packed.dtype], 0
    if node is not None and node.op_type == "DequantizeLinear":
        group = node.attributes.get_int("block_size", padded(size_in, MOST_ACTIVATIONS))
    own = name_of("INT8", "FLOAT", rounding.kind) if is_static else ""
    return Matrix(name, form, group, size_out, size_in, read, own, rounding)


def _emulated(node: ir.Node, packed: ir.Value, rounding: Rounding) -> Matrix:
    """Describe a weight whose numbers are widened to float32."""
    scale = operand(node, 1)
    maker = scale.producer()
    stored = scale if maker is None else operand(maker, 0)
    assert packed.dtype is not None
    assert stored.dtype is not None
    own = name_of(packed.dtype.name, stored.dtype.name, rounding.kind)
    name = str(packed.name).removesuffix(".packed")
    size_out, size_in = sizes(packed)

    def read() -> Parts:
        return (widened(node),)

    return Matrix(name, Form.FLOAT32, 0, size_out, size_in, read, own, rounding)


def widened(node: ir.Node) -> NDArray[np.float32]:
    """Compute a DequantizeLinear or a Cast of weights as ONNX defines it, in float32."""
    values = numbers(operand(node, 0)).astype(np.float32)
    if node.op_type == "Cast":
        return values
    scale = operand(node, 1)
    maker = scale.producer()
    factors = widened(maker) if maker is not None else numbers(scale).astype(np.float32)
    if factors.ndim == 1:  # one of an output
        factors = factors[:, None]
    elif factors.ndim:
        group = node.attributes.get_int("block_size", 0)
        factors = np.repeat(factors, group, axis=1)[:, : values.shape[1]]
    product: NDArray[np.float32] = values * factors
    return product


@dataclass(frozen=True, slots=True)
class Activated:
    """A projection whose results are bent."""

    kind: Activation
    gemm: ir.Node
    nodes: tuple[ir.Node, ...]
    """All that the activation consists of, the last one first."""


def activated(value: ir.Value) -> Activated | None:
    """Find the Gemm whose activation a value is, if it is that.

    Raises:
        UnsupportedError: it is a GELU of a kind that has no kernel.
    """
    node = source(value).producer()
    if node is None or node.op_type not in ("Mul", "Gelu", "Relu"):
        return None
    if node.op_type == "Mul":
        return _silu(node)
    gemm = made_by(operand(node, 0), "Gemm")
    if gemm is None:
        return None
    if node.op_type == "Relu":
        return Activated(Activation.RELU, gemm, (node,))
    kind = node.attributes.get_string("approximate", "none")
    if kind not in GELUS:
        raise UnsupportedError(
            f"target cpu does not support Gelu with approximate {kind}; supported: {', '.join(GELUS)}"
        )
    return Activated(GELUS[kind], gemm, (node,))


def gated(node: ir.Node) -> tuple[Activated, ir.Node] | None:
    """Give the gate and the Gemm of its factor, if a Mul is their product."""
    for act, other in ((0, 1), (1, 0)):
        up, gate = made_by(operand(node, other), "Gemm"), activated(operand(node, act))
        if up is not None and gate is not None:
            return gate, up
    return None


def _silu(node: ir.Node) -> Activated | None:
    """Read x * sigmoid(x)."""
    for plain, bent in ((0, 1), (1, 0)):
        sigmoid = made_by(operand(node, bent), "Sigmoid")
        if sigmoid is not None and operand(sigmoid, 0) is operand(node, plain):
            gemm = made_by(operand(node, plain), "Gemm")
            return None if gemm is None else Activated(Activation.SILU, gemm, (node, sigmoid))
    return None


def check_axis(node: ir.Node) -> None:
    """Refuse a norm of anything but whole rows.

    Raises:
        UnsupportedError: names the axis.
    """
    axis = node.attributes.get_int("axis", -1)
    if axis not in (-1, 1):
        raise UnsupportedError(
            f"target cpu does not support {node.op_type} from axis {axis}; supported: -1"
        )


@dataclass(frozen=True, slots=True)
class Rotation:
    """How queries and keys are turned; tables are `[positions, dims / 2]`."""

    dims: int
    pairs_neighbours: bool
    cosines: ir.Value
    sines: ir.Value


def rotation(attention: ir.Node, head_dim: int) -> Rotation | None:
    """Read the rotary embedding of queries and keys, if there is one.

    Raises:
        UnsupportedError: they are turned differently.
    """
    query, key = (_rotation(operand(attention, index), head_dim) for index in (0, 1))
    if query != key:
        raise UnsupportedError("target cpu can't turn queries and keys differently")
    return query


def _rotation(value: ir.Value, head_dim: int) -> Rotation | None:
    node = made_by(value, "RotaryEmbedding")
    if node is None:
        return None
    dims = node.attributes.get_int("rotary_embedding_dim", 0) or head_dim
    pairs_neighbours = bool(node.attributes.get_int("interleaved", 0))
    return Rotation(dims, pairs_neighbours, operand(node, 1), operand(node, 2))


def attention_attributes(node: ir.Node, head_dim: int) -> AttentionAttributes:
    """Read the attributes of PagedAttention.

    Raises:
        UnsupportedError: there is one without a kernel.
    """
    unknown = sorted(set(node.attributes) - set(spec.ATTRIBUTES))
    if unknown:
        raise UnsupportedError(
            f"target cpu does not support PagedAttention with {unknown[0]}; supported: {', '.join(spec.ATTRIBUTES)}"
        )
    return {
        "scale": node.attributes.get_float("scale", head_dim**-0.5),
        "window": node.attributes.get_int("window", 0),
        "soft_cap": node.attributes.get_float("soft_cap", 0.0),
    }


def sizes(value: ir.Value) -> tuple[int, int]:
    """Give the shape of a matrix."""
    assert value.shape is not None
    size_out, size_in = (int(size) for size in value.shape)  # type: ignore[arg-type]
    return size_out, size_in


def numbers(value: ir.Value) -> NDArray[np.generic]:
    """Read a weight's numbers."""
    assert value.const_value is not None
    return value.const_value.numpy()


def joined_numbers(values: list[ir.Value]) -> NDArray[np.generic]:
    """Read vectors one after another."""
    return np.concatenate([numbers(value) for value in values])
