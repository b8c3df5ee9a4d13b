"""Run a plan with the numpy references of its operations: slow, and the judge of the native engine.

One sequence, computed whole: its keys and values need no pool. Weights are unpacked from the artifact's own file.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.store import Artifact
from builder.targets.cpu.panels import PANEL
from builder.targets.cpu.plan import Operation
from plugins.embedding.reference import embedding
from plugins.layer_norm.reference import layer_norm
from plugins.linear.reference import activation, float_linear, gated, int8_linear
from plugins.linear.spec import ACTIVATIONS
from plugins.paged_attention.reference import round_keys_to_int8, round_to_int8, weigh
from plugins.quantize.reference import (
    quantize,
    quantize_dynamic,
    quantize_fixed,
    quantize_fp4,
    quantize_fp8,
)
from plugins.rms_norm.reference import rms_norm
from plugins.rope.reference import rotate, rotate_neighbours

HEADER, BUFFER, WEIGHT = struct.Struct("<8sI3i6i2q"), struct.Struct("<4ifi"), struct.Struct("<2q4i")
OPERATION = struct.Struct("<16i2fif2i40x")
NAMES = tuple(Operation.__dataclass_fields__)
Array = NDArray[Any]


@dataclass
class Weight:
    form: int
    group: int
    size_out: int
    size_in: int
    data: Array

    def floats(self) -> Array:
        return self.data.view(np.float32)

    def matrix(self, scale: float) -> tuple[Array, Array]:
        """Give numbers `[out, in]`, less their zero points, and, of integers, scales `[out, groups]`."""
        if self.form == 0:
            return self._by_outputs(self.floats(), self.size_in, 1), np.zeros(0)
        if self.form == 1:
            wide = (self.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
            return self._by_outputs(wide, self.size_in, 2), np.zeros(0)
        panels = self.data.reshape(self.size_out // PANEL, -1)
        groups, num_bytes = self.size_in // self.group, PANEL * self.size_in
        if self.form != 2:
            num_bytes //= 2
        halves = np.ascontiguousarray(panels[:, num_bytes:]).view(np.float16)
        scales = self._by_outputs(halves[:, : groups * PANEL], groups, 1)
        stored = scales.astype(np.float32) * np.float32(scale)
        if self.form == 2:
            numbers = panels[:, :num_bytes].view(np.int8)
            return self._by_outputs(numbers, self.size_in, 4), stored
        eights = panels[:, :num_bytes].reshape(-1, self.size_in // 8, 1, PANEL, 4)
        numbers = np.concatenate([eights & 15, eights >> 4], axis=2).view(np.int8)
        zeros: Any = 8
        if self.form == 4:
            begin = num_bytes + -(-2 * PANEL * groups // 64) * 64
            points = self._by_outputs(panels[:, begin : begin + PANEL * groups], groups, 1)
            zeros = np.repeat(points.view(np.int8), self.group, axis=1)
        return self._by_outputs(numbers, self.size_in, 4) - zeros, stored

    def _by_outputs(self, values: Array, size: int, together: int) -> Array:
        panels = values.reshape(-1, size // together, PANEL, together).transpose(0, 2, 1, 3)
        return panels.reshape(self.size_out, size)


class PlanRunner:
    """A plan, read back from its file."""

    def __init__(self, artifact: Artifact) -> None:
        (record,) = artifact.manifest.engines
        plan = artifact.path(record.path).read_bytes()
        data = np.fromfile(artifact.path(str(record.weights)), np.uint8)
        _, _, num_buffers, num_weights, num_operations, *_ = HEADER.unpack_from(plan)
        at = HEADER.size
        self.buffers = [BUFFER.unpack_from(plan, at + BUFFER.size * i) for i in range(num_buffers)]
        at += BUFFER.size * num_buffers
        self.weights = []
        for i in range(num_weights):
            offset, size, *rest = WEIGHT.unpack_from(plan, at + 32 * i)
            self.weights.append(Weight(*rest, data[offset : offset + size]))
        at += 32 * num_weights
        self.operations = [
            dict(zip(NAMES, OPERATION.unpack_from(plan, at + 128 * i), strict=True))
            for i in range(num_operations)
        ]
        self.round_kv = ROUND[artifact.manifest.kv.groups[0].dtype]

    def logits(self, tokens: list[int]) -> Array:
        """Give the logits of all tokens of a sequence."""
        self.rows: dict[int, Array] = {}
        self.tokens = np.array(tokens)
        steps = {
            1: self._embedding,
            2: self._rms_norm,
            3: self._linear,
            4: self._append,
            5: self._attention,
            7: self._quantize,
            8: self._layer_norm,
        }
        for operation in self.operations:
            if operation["code"] == 6:
                return self.rows[operation["input"]][:, : operation["size_in"]]
            steps[operation["code"]](operation)
        raise AssertionError("a plan without answers")

    def _write(self, buffer: int, rows: Array) -> None:
        _, form, width, group, scale, _ = self.buffers[buffer]
        padded = np.zeros((len(rows), width), np.float32)
        padded[:, : rows.shape[1]] = rows
        self.rows[buffer] = padded
        if form == 1:
            self.rows[buffer] = to_bfloat16(padded).astype(np.float32)
        if form == 5:
            self.rows[buffer] = (
                quantize_fp8(padded, scale) if scale else quantize_dynamic(padded, group)
            )
        if form == 6:
            self.rows[buffer] = quantize_fp4(padded, scale)

    def _embedding(self, op: dict[str, Any]) -> None:
        weight = self.weights[op["weight"]]
        numbers, scales = weight.matrix(op["scale"])
        table = numbers * np.repeat(scales, weight.group, axis=1) if scales.size else numbers
        self._write(op["output"], embedding(table[:, : op["size_out"]], self.tokens))

    def _rms_norm(self, op: dict[str, Any]) -> None:
        size = op["size_in"]
        weight = self.weights[op["weight"]].floats()[:size]
        self._write(op["output"], rms_norm(self.rows[op["input"]][:, :size], weight, op["eps"]))

    def _layer_norm(self, op: dict[str, Any]) -> None:
        size = op["size_in"]
        weight = self.weights[op["weight"]].floats()[:size]
        bias = self.weights[op["bias"]].floats()[:size] if op["bias"] >= 0 else None
        rows = self.rows[op["input"]][:, :size]
        self._write(op["output"], layer_norm(rows, weight, bias, eps=op["eps"]))

    def _linear(self, op: dict[str, Any]) -> None:
        weight = self.weights[op["weight"]]
        numbers, scales = weight.matrix(op["scale"])
        rows = self.rows[op["input"]]
        if scales.size:
            group, fixed = self.buffers[op["input"]][3:5]
            spread = np.repeat(scales, weight.group // group, axis=1)
            narrow = quantize_fixed(rows, group, fixed) if fixed else quantize(rows, group)
            result = int8_linear(*narrow, numbers, spread)
        else:
            result = float_linear(rows[:, : weight.size_in], numbers)
        if op["bias"] >= 0:
            result = result + self.weights[op["bias"]].floats()[: result.shape[1]]
        if op["epilogue"] == 1:
            result = result + self.rows[op["other"]][:, : result.shape[1]]
        if op["epilogue"] == 2:
            result = gated(ACTIVATIONS[op["activation"]], result)
        if op["epilogue"] == 3:
            result = activation(ACTIVATIONS[op["activation"]], result)
        self._write(op["output"], result)

    def _heads(self, op: dict[str, Any]) -> tuple[Array, Array, Array]:
        count, kv, dim = op["num_heads"], op["num_kv_heads"], op["head_dim"]
        rows = self.rows[op["input"]][:, : (count + 2 * kv) * dim].astype(np.float64)
        heads = rows.reshape(len(rows), -1, dim)
        return heads[:, :count], heads[:, count : count + kv], heads[:, count + kv :]

    def _append(self, op: dict[str, Any]) -> None:
        query, key, value = self._heads(op)
        half = op["rope_dim"] // 2
        turn = rotate_neighbours if op["pairs_neighbours"] else rotate
        sizes = slice(None, len(query) * half)
        cos, sin = (self.weights[op["extra"] + i].floats()[sizes].reshape(-1, half) for i in (0, 1))
        self.turned = turn(query, cos, sin), turn(key, cos, sin), value

    def _attention(self, op: dict[str, Any]) -> None:
        query, *pair = self.turned
        key, value = (round_to(part) for round_to, part in zip(self.round_kv, pair, strict=True))
        group = op["num_heads"] // op["num_kv_heads"]
        key, value = np.repeat(key, group, axis=1), np.repeat(value, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", query, key) * op["scale"]
        past = np.arange(len(query))[:, None] - np.arange(len(query))
        scores[:, (past < 0) | (past >= (op["window"] or len(query)))] = -np.inf
        weights = weigh(scores, soft_cap=op["soft_cap"])
        self._write(op["output"], np.einsum("hqk,khd->qhd", weights, value).reshape(len(query), -1))

    def _quantize(self, op: dict[str, Any]) -> None:
        rows = self.rows[op["input"]][:, : op["size_in"]]
        if op["weight"] >= 0:
            rows = rows * self.weights[op["weight"]].floats()[: op["size_in"]]
        self._write(op["output"], rows)


def to_bfloat16(values: Array) -> Array:
    """Round to bfloat16, half to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16 << 16
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


ROUND: dict[str, tuple[Callable[[Array], Array], ...]] = {
    "float32": (lambda keys: keys, lambda values: values),
    "bfloat16": (to_bfloat16, to_bfloat16),
    "int8": (round_keys_to_int8, round_to_int8),
}
"""How keys, and how values, are rounded, by the cache's type."""
