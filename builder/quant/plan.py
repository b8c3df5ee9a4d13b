"""Which layers of a graph get which precision."""

from collections.abc import Callable
from dataclasses import dataclass, field

import onnx_ir as ir

from builder.checkpoint.groups import CHANNEL
from builder.checkpoint.rows import RowScales
from builder.errors import UnsupportedError
from builder.graph.graph import Graph
from builder.graph.patterns import operand, table_lookups
from builder.quant import FORMATS
from builder.quant.groups import Parts

FLOAT32, BFLOAT16 = "float32", "bfloat16"


@dataclass(frozen=True, slots=True)
class Precision:
    """How the numbers of a weight are stored."""

    name: str
    """`float32`, `bfloat16` or a format of FORMATS."""
    group: int = 0
    """Inputs that share a scale; 0 for one scale per output, and for floats."""

    @property
    def label(self) -> str:
        """Name the precision for people: the group is left out where it is the format's own."""
        if self.name not in FORMATS or self.group == FORMATS[self.name].GROUP:
            return self.name
        return f"{self.name}-channel" if self.group == CHANNEL else f"{self.name}-g{self.group}"


@dataclass(frozen=True, slots=True)
class QuantPlan:
    """The precision of each weight that is not float32."""

    requested: str
    layers: dict[str, Precision]
    parts: dict[str, Callable[[], Parts]] = field(default_factory=dict)
    """Read weights that come quantized already, as the `pack` of their format would give them."""
    rows: dict[str, RowScales] = field(default_factory=dict)
    """What is fixed of the rows that weights are multiplied with."""


def precision_of(dtype: str, quant: str, group: int | None) -> Precision:
    """Give the precision of linear layers that options ask for; the formats' own group unless one is named.

    Raises:
        UnsupportedError: the format has no such groups, or the options contradict each other.
    """
    if quant == "none":
        if group is not None:
            raise UnsupportedError(
                "--group goes with a quantization format, such as --int8 --group 64"
            )
        return Precision(dtype)
    if dtype != FLOAT32:
        raise UnsupportedError(
            f"--dtype {dtype} does not go with format {quant}, which fixes the precision of its layers; leave out one"
        )
    rules = FORMATS[quant]
    if group is None:
        return Precision(quant, rules.GROUP)
    if len(rules.GROUPS) == 1:
        raise UnsupportedError(f"format {quant} fixes its groups; leave out --group")
    if group not in rules.GROUPS:
        allowed = ", ".join("channel" if size == CHANNEL else str(size) for size in rules.GROUPS)
        raise UnsupportedError(
            f"format {quant} has no groups of {group or 'a whole channel'}; supported: {allowed}"
        )
    return Precision(quant, group)


def plan_quantization(graph: Graph, precision: Precision) -> QuantPlan:
    """Give every linear layer the same precision, and head and embedding table the one that its format has for heads."""
    if precision.name == FLOAT32:
        return QuantPlan(FLOAT32, {})
    layers = {str(weight.name): precision for weight in linear_weights(graph.model)}
    ends = precision
    if (rules := FORMATS.get(precision.name)) and precision.name != rules.HEAD:
        ends = Precision(rules.HEAD, rules.HEAD_GROUP)
    for weight in graph_ends(graph.model):
        layers[str(weight.name)] = ends
    layers = {name: layer for name, layer in layers.items() if layer.name != FLOAT32}
    return QuantPlan(precision.label, layers)


def linear_weights(model: ir.Model) -> list[ir.Value]:
    """List the weights `[out, in]` that are multiplied in linear layers, once each, in graph order."""
    found: dict[str | None, ir.Value] = {}
    for node in model.graph:
        if node.op_type == "Gemm" and (weight := node.inputs[1]) and weight.is_initializer():
            found.setdefault(weight.name, weight)
    return list(found.values())


def graph_ends(model: ir.Model) -> list[ir.Value]:
    """List the weights of heads and the tables of lookups."""
    return [*_heads(model), *_tables(model)]


def _heads(model: ir.Model) -> list[ir.Value]:
    makers = [value.producer() for value in model.graph.outputs]
    inputs = [maker.inputs[1] for maker in makers if maker is not None and maker.op_type == "Gemm"]
    return [weight for weight in inputs if weight is not None]


def _tables(model: ir.Model) -> list[ir.Value]:
    return [operand(node, 0) for node in table_lookups(model.graph)]
