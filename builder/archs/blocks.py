"""Functions that architectures compose: each adds one block to the graph and gives its output.

Hidden states are `[T, hidden]`. Linear weights keep the checkpoint's layout `[out, in]`, so that a head may
share the embedding table. There is no class to inherit: an architecture calls what it needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from builder.archs.rope import rope_tables
from builder.artifact.config import ModelConfig
from builder.checkpoint.tensors import Tensor
from builder.graph import ops
from builder.graph.emit import IR_VERSION, OPSET, Emitter
from builder.graph.graph import Graph, cache_name, cache_out_name
from plugins.paged_attention import spec

INT32 = ir.DataType.INT32
FLOAT = ir.DataType.FLOAT


@dataclass(frozen=True, slots=True)
class StepInputs:
    """The step tensors as graph inputs, and what all layers derive from them once."""

    token_ids: ir.Value
    positions: ir.Value
    """`[T, 1]` int64: to RotaryEmbedding every token is a sequence of its own, because it refuses sequences
    that are longer than its tables, and a step may have more tokens than a sequence."""
    logit_rows: ir.Value
    attention: tuple[ir.Value, ...]
    """slot_mapping, query_start, seq_lens, block_tables."""
    inputs: tuple[ir.Value, ...]


class Weights(Protocol):
    """Where the numbers of a graph come from."""

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Give a tensor by name, which must have this shape.

        Raises:
            CheckpointError: it is missing, or has another shape.
        """
        ...

    def finish(self) -> object:
        """Settle what nobody took.

        Raises:
            UnsupportedError: something is left over that means something.
        """
        ...


class Blocks:
    """Everything that blocks need to add themselves to one graph."""

    def __init__(self, config: ModelConfig, weights: Weights, max_seq_len: int) -> None:
        self.config = config
        self.emit = Emitter()
        self.step = _step_inputs(self.emit)
        self._weights = weights
        self._function = ops.paged_attention()
        self._caches: list[tuple[ir.Value, ir.Value]] = []
        cos, sin = rope_tables(config.rope, config.head_dim, max_seq_len)
        self._cos = self._table("rope.cos", cos)
        self._sin = self._table("rope.sin", sin)

    def weight(self, name: str, *shape: int) -> ir.Value:
        """Take a tensor of the checkpoint, which must have this shape.

        Raises:
            CheckpointError: it is missing, or has another shape.
        """
        if name in self.emit.initializers:
            return self.emit.initializers[name]
        return self.emit.initializer(name, self._weights.take(name, shape).read, FLOAT, shape)

    def embedding(self, name: str) -> ir.Value:
        """Look up token embeddings: `[T, hidden]`."""
        table = self.weight(name, self.config.vocab_size, self.config.hidden_size)
        return self.emit("Gather", table, self.step.token_ids, axis=0)

    def rms_norm(self, x: ir.Value, name: str) -> ir.Value:
        """Divide by the root mean square and scale."""
        weight = self.weight(f"{name}.weight", self.config.hidden_size)
        return self.emit("RMSNormalization", x, weight, axis=-1, epsilon=self.config.norm_eps)

    def linear(self, x: ir.Value, name: str, sizes: tuple[int, int], *, bias: bool) -> ir.Value:
        """Multiply by the transposed weight `[out, in]` given as sizes (in, out), and add the bias if any."""
        size_in, size_out = sizes
        weight = self.weight(f"{name}.weight", size_out, size_in)
        inputs = [x, weight, *([self.weight(f"{name}.bias", size_out)] if bias else [])]
        return self.emit("Gemm", *inputs, transB=1)

    def attention(self, x: ir.Value, layer: int, name: str) -> ir.Value:
        """Add rotary self-attention over the paged cache, with its four projections."""
        config = self.config
        hidden, width = config.hidden_size, config.num_heads * config.head_dim
        kv_width, bias = config.num_kv_heads * config.head_dim, config.attention_bias
        query = self.linear(x, f"{name}.q_proj", (hidden, width), bias=bias)
        key = self.linear(x, f"{name}.k_proj", (hidden, kv_width), bias=bias)
        value = self.linear(x, f"{name}.v_proj", (hidden, kv_width), bias=bias)
        attended = self._paged_attention(
            self._split_heads(self._rotate(query, config.num_heads), config.num_heads),
            self._split_heads(self._rotate(key, config.num_kv_heads), config.num_kv_heads),
            self._split_heads(value, config.num_kv_heads),
            layer=layer,
        )
        merged = self.emit("Reshape", attended, self.emit.ints(-1, width))
        return self.linear(merged, f"{name}.o_proj", (width, hidden), bias=bias)

    def gated_mlp(
        self, x: ir.Value, name: str, activation: Callable[[Emitter, ir.Value], ir.Value]
    ) -> ir.Value:
        """Add down(activation(gate(x)) * up(x))."""
        config = self.config
        wide, bias = (config.hidden_size, config.intermediate_size), config.mlp_bias
        gate = activation(self.emit, self.linear(x, f"{name}.gate_proj", wide, bias=bias))
        up = self.linear(x, f"{name}.up_proj", wide, bias=bias)
        return self.linear(self.emit("Mul", gate, up), f"{name}.down_proj", wide[::-1], bias=bias)

    def head(self, x: ir.Value, name: str) -> ir.Value:
        """Give logits `[J, V]` of the wanted rows."""
        rows = self.emit("Gather", x, self.step.logit_rows, axis=0)
        weight = self.weight(name, self.config.vocab_size, self.config.hidden_size)
        return self.emit("Gemm", rows, weight, transB=1)

    def finish(self, logits: ir.Value) -> Graph:
        """Close the graph: inputs in the order of the step contract, then the caches; logits first of the outputs."""
        _declare(logits, "logits", FLOAT, ("J", self.config.vocab_size))
        graph = ir.Graph(
            [*self.step.inputs, *(cache for cache, _ in self._caches)],
            [logits, *(out for _, out in self._caches)],
            nodes=self.emit.nodes,
            initializers=list(self.emit.initializers.values()),
            opset_imports={"": OPSET, spec.DOMAIN: spec.VERSION},
            name=self.config.arch,
        )
        model = ir.Model(
            graph, ir_version=IR_VERSION, producer_name="forerun", functions=[self._function]
        )
        return Graph(model, self.config)

    def _paged_attention(
        self, query: ir.Value, key: ir.Value, value: ir.Value, *, layer: int
    ) -> ir.Value:
        config = self.config
        shape = ("N", 2, config.num_kv_heads, "block", config.head_dim)
        cache = _declare(ir.Value(), cache_name(layer), FLOAT, shape)
        attended, cache_out = self.emit.call(
            self._function,
            query,
            key,
            value,
            cache,
            *self.step.attention,
            scale=config.head_dim**-0.5,
        )
        _declare(cache_out, cache_out_name(layer), FLOAT, shape)
        self._caches.append((cache, cache_out))
        return attended

    def _rotate(self, x: ir.Value, num_heads: int) -> ir.Value:
        batch = self.emit("Unsqueeze", x, self.emit.ints(1))
        inputs = (batch, self._cos, self._sin, self.step.positions)
        rotated = self.emit("RotaryEmbedding", *inputs, num_heads=num_heads)
        return self.emit("Squeeze", rotated, self.emit.ints(1))

    def _split_heads(self, x: ir.Value, num_heads: int) -> ir.Value:
        return self.emit("Reshape", x, self.emit.ints(-1, num_heads, self.config.head_dim))

    def _table(
        self, name: str, values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
    ) -> ir.Value:
        return self.emit.initializer(name, lambda: values, FLOAT, values.shape)


def silu(emit: Emitter, x: ir.Value) -> ir.Value:
    """Give x * sigmoid(x)."""
    return emit("Mul", x, emit("Sigmoid", x))


ACTIVATIONS: dict[str, Callable[[Emitter, ir.Value], ir.Value]] = {"silu": silu}
"""Activations by the name that config.json gives them."""


def _step_inputs(emit: Emitter) -> StepInputs:
    shapes = {
        "token_ids": ("T",),
        "positions": ("T",),
        "query_start": ("S+1",),
        "seq_lens": ("S",),
        "block_tables": ("S", "B"),
        "slot_mapping": ("T",),
        "logit_rows": ("J",),
    }
    values = {name: _declare(ir.Value(), name, INT32, shape) for name, shape in shapes.items()}
    positions = emit("Cast", values["positions"], to=ir.DataType.INT64)
    attention = ("slot_mapping", "query_start", "seq_lens", "block_tables")
    return StepInputs(
        token_ids=values["token_ids"],
        positions=emit("Unsqueeze", positions, emit.ints(1)),
        logit_rows=values["logit_rows"],
        attention=tuple(values[name] for name in attention),
        inputs=tuple(values.values()),
    )


def _declare(
    value: ir.Value, name: str, dtype: ir.DataType, shape: tuple[int | str, ...]
) -> ir.Value:
    value.name, value.shape, value.type = name, ir.Shape(shape), ir.TensorType(dtype)
    return value
