"""Lower a quantized graph to a plan: fuse what belongs together, choose buffers, name the weights.

Nodes are visited in order. What has no operation of its own is emitted by the node that ends its pattern: the
projections of attention by PagedAttention, gate and up by their product, an output projection by its Add.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import onnx_ir as ir

from builder.artifact.config import KVGeometry
from builder.errors import UnsupportedError
from builder.graph.graph import QuantizedGraph
from builder.graph.patterns import is_passed, made_by, operand, readers, source
from builder.targets.cpu import packing, panels, reading
from builder.targets.cpu.buffers import Buffers
from builder.targets.cpu.packing import Packed
from builder.targets.cpu.plan import (
    KV_FORMS,
    NOTHING,
    Code,
    Epilogue,
    Geometry,
    Operation,
    Program,
    Rows,
)
from builder.targets.cpu.wanted import Wanted, floats, wanted_by_readers
from builder.targets.cpu.weight_table import WeightTable
from plugins.paged_attention import spec

NORMS = {"RMSNormalization": Code.RMS_NORM, "LayerNormalization": Code.LAYER_NORM}


class Lowering:
    """The state of lowering one graph."""

    def __init__(self, graph: QuantizedGraph, kv: KVGeometry) -> None:
        self.config = graph.config
        self.weights = WeightTable()
        self.realized: dict[str, str] = {}
        self._graph = graph.model.graph
        self._kv = kv
        self._buffers = Buffers()
        self._operations: list[Operation] = []
        self._emitted: set[ir.Node] = set()

    def program(self) -> Program:
        """Lower the whole graph.

        Raises:
            UnsupportedError: an operation or a pattern has no kernel.
        """
        emit = {
            "Gather": self._gather,
            "RMSNormalization": self._norm,
            "LayerNormalization": self._norm,
            spec.NAME: self._attention,
            "Mul": self._multiply,
            "Gelu": self._activate,
            "Relu": self._activate,
            "Add": self._add,
            "Gemm": self._head,
        }
        for node in self._graph:
            if node.op_type in emit:
                emit[node.op_type](node)
        self._check_all_emitted()
        return Program(self._geometry(), tuple(self._buffers.all), tuple(self._operations))

    def _gather(self, node: ir.Node) -> None:
        if operand(node, 1).name != "token_ids":
            return  # the rows whose logits are wanted: taken by the norm before
        table = reading.matrix(operand(node, 0))
        if table.form in panels.WIDENED:
            raise UnsupportedError(
                f"target cpu can't look up tokens in {table.name}, which is {table.precision}; supported for embedding "
                "tables: float32, bfloat16, int8, int4, uint4"
            )
        out = self._buffers.new(node.outputs[0], floats(Rows.TOKENS, table.size_in))
        self._emit(
            Operation(
                Code.EMBEDDING,
                output=out,
                weight=self.weights.place(packing.pack_stacked([table])),
                size_out=table.size_in,
                scale=panels.stored_scale(table.form),
            ),
            node,
        )

    def _norm(self, node: ir.Node) -> None:
        """Emit a norm of all tokens, or of the wanted rows where only these are read."""
        reading.check_axis(node)
        x, weight, result = operand(node, 0), operand(node, 1), node.outputs[0]
        bias = node.inputs[2] if len(node.inputs) > 2 else None
        rows = Rows.TOKENS
        picked = [reader for reader in readers(result) if reader.op_type == "Gather"]
        if picked:
            rows, result = Rows.LOGIT_ROWS, picked[0].outputs[0]
            self._emitted.add(picked[0])
        size = self.config.hidden_size
        norm = Operation(
            NORMS[node.op_type],
            rows,
            self._buffers.place(x),
            weight=self.weights.vector(weight, size),
            bias=NOTHING if bias is None else self.weights.vector(bias, size),
            size_in=size,
            eps=node.attributes.get_float("epsilon", 1e-5),
        )
        wanted = wanted_by_readers(result, rows)
        with self._writing(result, wanted, fits=True, size=size) as out:
            self._emit(replace(norm, output=out), node)
        self._buffers.read(x)

    def _attention(self, node: ir.Node) -> None:
        config = self.config
        query, key, value = (self._gemm(operand(node, index)) for index in range(3))
        rotation = reading.rotation(node, config.head_dim)
        layer = int(str(operand(node, 3).name).rpartition(".")[2])
        (group,) = self._kv.groups
        heads = Operation(
            Code.APPEND,
            layer=layer,
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            **reading.attention_attributes(node, config.head_dim),
            key_scale=group.key_scales[layer] if group.key_scales else 0.0,
            value_scale=group.value_scales[layer] if group.value_scales else 0.0,
        )
        if rotation is not None:
            heads = replace(
                heads,
                rope_dim=rotation.dims,
                pairs_neighbours=rotation.pairs_neighbours,
                extra=self.weights.rope(rotation.cosines, rotation.sines),
            )
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        qkv = self._buffers.take(floats(Rows.TOKENS, width))
        self._linear([query, key, value], qkv)
        self._emit(replace(heads, input=qkv))
        result = node.outputs[0]
        size = config.num_heads * config.head_dim
        wanted = wanted_by_readers(result, Rows.TOKENS)
        fits = wanted.buffer.holds_heads(config.head_dim, size)
        with self._writing(result, wanted, fits=fits, size=size) as out:
            self._emit(replace(heads, code=Code.ATTENTION, input=qkv, output=out), node)
            self._buffers.give_back(qkv)

    def _multiply(self, node: ir.Node) -> None:
        """Emit gate and up projections by their product; it may also be the last node of a SiLU."""
        pair = reading.gated(node)
        if pair is None:
            return self._activate(node)
        gate, up = pair
        matrices = [reading.multiplied(gemm) for gemm in (gate.gemm, up)]
        wanted = wanted_by_readers(node.outputs[0], Rows.TOKENS)
        packed = packing.pack_gated(matrices[0], matrices[1], wanted.buffer.width)
        operation = Operation(Code.LINEAR, epilogue=Epilogue.GATE, activation=gate.kind)
        fits, size = wanted.buffer.takes_parts, wanted.buffer.width
        with self._writing(node.outputs[0], wanted, fits=fits, size=size) as out:
            self._linear_op([gate.gemm, up], packed, out, operation)
        self._emitted.update((node, *gate.nodes))
        return None

    def _activate(self, node: ir.Node) -> None:
        """Emit a projection by the activation of its results, unless that is a gate."""
        found = reading.activated(node.outputs[0])
        if found is None or found.nodes[0] is not node:
            return
        readers_of = list(readers(node.outputs[0]))
        if any(reader.op_type == "Mul" and reading.gated(reader) for reader in readers_of):
            return
        wanted = wanted_by_readers(node.outputs[0], Rows.TOKENS)
        packed = packing.pack_widened(reading.multiplied(found.gemm), wanted.buffer.width)
        operation = Operation(Code.LINEAR, epilogue=Epilogue.ACTIVATE, activation=found.kind)
        fits, size = wanted.buffer.takes_parts, wanted.buffer.width
        with self._writing(node.outputs[0], wanted, fits=fits, size=size) as out:
            self._linear_op([found.gemm], packed, out, operation)
        self._emitted.update(found.nodes)

    def _add(self, node: ir.Node) -> None:
        for index, other in ((1, 0), (0, 1)):
            gemm = made_by(operand(node, index), "Gemm")
            if gemm is not None and gemm not in self._emitted:
                residual = source(operand(node, other))
                break
        else:
            return
        place = self._buffers.place(residual)
        out = self._buffers.add_to(residual, node.outputs[0])
        operation = Operation(Code.LINEAR, other=place, epilogue=Epilogue.ADD)
        self._linear([gemm], out, operation)
        self._emitted.add(node)

    def _head(self, node: ir.Node) -> None:
        if node.outputs[0] is not self._graph.outputs[0]:
            return
        size = self.config.vocab_size
        logits = self._buffers.take(floats(Rows.LOGIT_ROWS, size))
        self._linear([node], logits, Operation(Code.LINEAR, Rows.LOGIT_ROWS))
        self._emit(Operation(Code.ROW_ANSWERS, Rows.LOGIT_ROWS, logits, size_in=size))

    def _linear(self, gemms: list[ir.Node], out: int, operation: Operation | None = None) -> None:
        matrices = [reading.multiplied(gemm) for gemm in gemms]
        if len({(matrix.form, matrix.group) for matrix in matrices}) > 1:
            raise UnsupportedError("target cpu can't join projections of different precision")
        packed = packing.pack_stacked(matrices)
        self._linear_op(gemms, packed, out, operation or Operation(Code.LINEAR))

    def _linear_op(
        self, gemms: list[ir.Node], packed: Packed, out: int, operation: Operation
    ) -> None:
        """Emit Gemms of one input as one operation."""
        x = source(operand(gemms[0], 0))
        if any(source(operand(gemm, 0)) is not x for gemm in gemms):
            raise UnsupportedError("target cpu can't join projections of different inputs")
        for gemm in gemms:
            matrix = reading.multiplied(gemm)
            self.realized[matrix.name] = matrix.precision
        self._emit(
            replace(
                operation,
                input=self._buffers.place(x),
                output=out,
                weight=self.weights.place(packed),
                bias=self.weights.bias(gemms, packed, operation.epilogue),
                scale=panels.stored_scale(packed.form),
            ),
            *gemms,
        )
        for _ in gemms:
            self._buffers.read(x)

    @contextmanager
    def _writing(self, value: ir.Value, wanted: Wanted, *, fits: bool, size: int) -> Iterator[int]:
        """Give the buffer that rows of a value are written to; where they don't fit, round them behind."""
        if fits and wanted.is_direct:
            yield self._buffers.new(value, wanted.buffer)
            return
        kind = wanted.buffer.rows
        rows = self._buffers.take(floats(kind, size))
        yield rows
        out = self._buffers.new(value, wanted.buffer)
        operation = Operation(Code.QUANTIZE, kind, rows, out, size_in=size)
        if wanted.factors is not None:
            operation = replace(operation, weight=self.weights.vector(wanted.factors, size))
        if wanted.order is not None:
            operation = replace(operation, extra=self.weights.order(wanted.order, size))
        self._emit(operation)
        self._buffers.give_back(rows)

    def _gemm(self, value: ir.Value) -> ir.Node:
        """Find the projection behind an operand of attention, rotated or not."""
        rope = made_by(value, "RotaryEmbedding")
        if rope is not None:
            self._emitted.add(rope)
            value = operand(rope, 0)
        gemm = made_by(value, "Gemm")
        if gemm is None:
            raise UnsupportedError("target cpu needs a projection before attention")
        return gemm

    def _emit(self, operation: Operation, *nodes: ir.Node) -> None:
        self._operations.append(operation)
        self._emitted.update(nodes)

    def _check_all_emitted(self) -> None:
        known = ("Constant", "Cast")
        for node in self._graph:
            if node not in self._emitted and node.op_type not in known and not is_passed(node):
                raise UnsupportedError(
                    f"target cpu has no kernel for {node.op_type} as it stands in this graph; use --target portable"
                )

    def _geometry(self) -> Geometry:
        (group,) = self._kv.groups
        return Geometry(
            len(group.layers),
            group.num_kv_heads,
            self.config.head_dim,
            KV_FORMS[group.dtype],
            self._kv.block_size,
            self.config.vocab_size,
        )
