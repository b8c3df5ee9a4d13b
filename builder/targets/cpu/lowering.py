"""Lower a quantized graph to a plan: fuse what belongs together, choose buffers, name the weights.

Nodes are visited in order. What has no operation of its own is emitted by the node that ends its pattern: the
projections of attention by PagedAttention, gate and up by their product, an output projection by its Add.
"""

from dataclasses import replace

import onnx_ir as ir

from builder.artifact.config import KVGeometry
from builder.errors import UnsupportedError
from builder.graph.graph import QuantizedGraph
from builder.targets.cpu import packing, panels, reading
from builder.targets.cpu.buffers import Buffers
from builder.targets.cpu.packing import Packed
from builder.targets.cpu.panels import PANEL, padded
from builder.targets.cpu.plan import (
    NOTHING,
    Buffer,
    Code,
    Epilogue,
    Form,
    Geometry,
    Operation,
    Program,
    Rows,
)
from builder.targets.cpu.reading import made_by, operand, readers, source
from plugins.paged_attention import spec

KV_FORMS = {"float32": Form.FLOAT32, "bfloat16": Form.BFLOAT16}


class Lowering:
    """The state of lowering one graph."""

    def __init__(self, graph: QuantizedGraph, kv: KVGeometry) -> None:
        self.config = graph.config
        self.weights: list[Packed] = []
        self.realized: dict[str, str] = {}
        self._graph = graph.model.graph
        self._kv = kv
        self._buffers = Buffers()
        self._operations: list[Operation] = []
        self._weight_ids: dict[str, int] = {}
        self._emitted: set[ir.Node] = set()

    def program(self) -> Program:
        """Lower the whole graph.

        Raises:
            UnsupportedError: an operation or a pattern has no kernel.
        """
        emit = {
            "Gather": self._gather,
            "RMSNormalization": self._rms_norm,
            spec.NAME: self._attention,
            "Mul": self._gate,
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
        out = self._buffers.new(node.outputs[0], _floats(Rows.TOKENS, table.size_in))
        self._emit(
            Operation(
                Code.EMBEDDING,
                output=out,
                weight=self._id(packing.pack_stacked([table])),
                size_out=table.size_in,
                scale=panels.stored_scale(table.form),
            ),
            node,
        )

    def _rms_norm(self, node: ir.Node) -> None:
        x, weight, result = operand(node, 0), operand(node, 1), node.outputs[0]
        rows = Rows.TOKENS
        picked = [reader for reader in readers(result) if reader.op_type == "Gather"]
        if picked:
            rows, result = Rows.LOGIT_ROWS, picked[0].outputs[0]
            self._emitted.add(picked[0])
        size = self.config.hidden_size
        out = self._buffers.new(result, self._input_of(result, rows))
        norm = Operation(
            Code.RMS_NORM,
            rows,
            self._buffers.place(x),
            out,
            weight=self._vector_id(weight, size),
            size_in=size,
            eps=node.attributes.get_float("epsilon", 1e-5),
        )
        self._emit(norm, node)
        self._buffers.read(x)

    def _attention(self, node: ir.Node) -> None:
        config = self.config
        query, key, value = (self._gemm(operand(node, index)) for index in range(3))
        rope = made_by(operand(node, 0), "RotaryEmbedding")
        heads = Operation(
            Code.APPEND,
            layer=int(str(operand(node, 3).name).rpartition(".")[2]),
            num_heads=config.num_heads,
            num_kv_heads=config.num_kv_heads,
            head_dim=config.head_dim,
            rope_dim=config.head_dim if rope is not None else 0,
            extra=self._rope(rope) if rope is not None else NOTHING,
            scale=node.attributes.get_float("scale", config.head_dim**-0.5),
        )
        width = (config.num_heads + 2 * config.num_kv_heads) * config.head_dim
        qkv = self._buffers.take(_floats(Rows.TOKENS, width))
        self._linear([query, key, value], qkv)
        self._emit(replace(heads, input=qkv))
        result = node.outputs[0]
        size = config.num_heads * config.head_dim
        wanted = self._input_of(result, Rows.TOKENS)
        fits = wanted.holds_heads(config.head_dim, size)
        made = wanted if fits else _floats(Rows.TOKENS, size)
        out = self._buffers.take(made) if not fits else self._buffers.new(result, made)
        self._emit(replace(heads, code=Code.ATTENTION, input=qkv, output=out), node)
        self._buffers.give_back(qkv)
        if not fits:
            quantized = self._buffers.new(result, wanted)
            self._emit(Operation(Code.QUANTIZE, input=out, output=quantized, size_in=size))
            self._buffers.give_back(out)

    def _gate(self, node: ir.Node) -> None:
        pair = reading.gated(node)
        if pair is None:
            if reading.silu_of(node) is not None:
                self._emitted.update((node, *self._makers(node, "Sigmoid")))
            return
        gate, up = (reading.matrix(operand(gemm, 1)) for gemm in pair)
        wanted = self._input_of(node.outputs[0], Rows.TOKENS)
        packed = packing.pack_gated(gate, up, wanted.width)
        out = self._buffers.new(node.outputs[0], wanted)
        self._linear_op(
            list(pair), packed, out, Operation(Code.LINEAR, epilogue=Epilogue.SILU_GATE)
        )
        self._emitted.add(node)

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
        logits = self._buffers.take(_floats(Rows.LOGIT_ROWS, size))
        self._linear([node], logits, Operation(Code.LINEAR, Rows.LOGIT_ROWS))
        self._emit(Operation(Code.ROW_ANSWERS, Rows.LOGIT_ROWS, logits, size_in=size))

    def _linear(self, gemms: list[ir.Node], out: int, operation: Operation | None = None) -> None:
        matrices = [reading.matrix(operand(gemm, 1)) for gemm in gemms]
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
            matrix = reading.matrix(operand(gemm, 1))
            self.realized[matrix.name] = matrix.form.name.lower()
        self._emit(
            replace(
                operation,
                input=self._buffers.place(x),
                output=out,
                weight=self._id(packed),
                bias=self._bias(gemms, packed, operation.epilogue),
                scale=panels.stored_scale(packed.form),
            ),
            *gemms,
        )
        for _ in gemms:
            self._buffers.read(x)

    def _bias(self, gemms: list[ir.Node], packed: Packed, epilogue: Epilogue) -> int:
        values = [gemm.inputs[2] if len(gemm.inputs) > 2 else None for gemm in gemms]
        found = [value for value in values if value is not None]
        if not found:
            return NOTHING
        if len(found) < len(gemms):
            raise UnsupportedError("target cpu can't join projections with and without a bias")
        sizes = [reading.sizes_of_vector(value) for value in found]
        name = "+".join(str(value.name) for value in found)
        if epilogue == Epilogue.SILU_GATE:
            half = packed.size_out // 2
            return self._id(
                packing.pack_vector(
                    name,
                    2 * half,
                    lambda: packing.interleave_vectors(
                        reading.numbers(found[0]), reading.numbers(found[1]), half
                    ),
                )
            )
        return self._id(
            packing.pack_vector(name, sum(sizes), lambda: reading.joined_numbers(found))
        )

    def _rope(self, node: ir.Node) -> int:
        reading.check_rotation(node, self.config.head_dim)
        cosines, sines = operand(node, 1), operand(node, 2)
        positions, half = reading.sizes(cosines)
        first = self._vector_id(cosines, positions * half)
        self._vector_id(sines, positions * half)
        return first

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

    def _input_of(self, value: ir.Value, rows: Rows) -> Buffer:
        """Choose the form that the readers of a value take."""
        matrices = [
            reading.matrix(operand(reader, 1))
            for reader in readers(value)
            if reader.op_type == "Gemm"
        ]
        forms = {(*matrix.activations, matrix.padded_in) for matrix in matrices}
        if len(forms) != 1 or len(matrices) < len(list(readers(value))):
            raise UnsupportedError("target cpu can't give one value in two precisions")
        form, group, width = forms.pop()
        return Buffer(rows, form, padded(width, PANEL), group)

    def _vector_id(self, value: ir.Value, size: int) -> int:
        return self._id(packing.pack_vector(str(value.name), size, lambda: reading.numbers(value)))

    def _id(self, packed: Packed) -> int:
        if packed.name not in self._weight_ids:
            self._weight_ids[packed.name] = len(self.weights)
            self.weights.append(packed)
        return self._weight_ids[packed.name]

    def _emit(self, operation: Operation, *nodes: ir.Node) -> None:
        self._operations.append(operation)
        self._emitted.update(nodes)

    def _makers(self, node: ir.Node, op_type: str) -> list[ir.Node]:
        found = (made_by(value, op_type) for value in node.inputs if value is not None)
        return [maker for maker in found if maker is not None]

    def _check_all_emitted(self) -> None:
        known = (*reading.VIEWS, "Constant", "Cast", "DequantizeLinear")
        for node in self._graph:
            if node not in self._emitted and node.op_type not in known:
                raise UnsupportedError(
                    f"target cpu has no kernel for {node.op_type} as it stands in this graph; use --target portable"
                )

    def _geometry(self) -> Geometry:
        (group,) = self._kv.groups
        return Geometry(
            len(group.layers),
            group.num_kv_heads,
            group.head_dim,
            KV_FORMS[group.dtype],
            self._kv.block_size,
            self.config.vocab_size,
        )


def _floats(rows: Rows, size: int) -> Buffer:
    return Buffer(rows, Form.FLOAT32, padded(size, PANEL))
