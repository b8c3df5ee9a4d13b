"""The file format of a CPU plan: what `native/plan.h` reads, written with fixed-width little-endian numbers.

A plan is a header, then tables of buffers, weights and operations without gaps. It holds no pointers and no
numbers of the model: weights are ranges of a file that is mapped. The limits of the engine are not in it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

from builder.errors import ArtifactError

MAGIC = b"FORERUNP"
VERSION = 4
NOTHING = -1
"""For an optional buffer or weight."""
_HEADER = struct.Struct("<8sI3i6i2q")
_BUFFER = struct.Struct("<4if4x")
_WEIGHT = struct.Struct("<2q4i")
_OPERATION = struct.Struct("<16i2fif2i2f32x")


class Code(IntEnum):
    """What an operation does; see `plugins/`."""

    EMBEDDING = 1
    RMS_NORM = 2
    LINEAR = 3
    APPEND = 4
    ATTENTION = 5
    ROW_ANSWERS = 6
    QUANTIZE = 7
    LAYER_NORM = 8


class Epilogue(IntEnum):
    """What a linear operation does to its results on the way out."""

    NONE = 0
    ADD = 1
    GATE = 2
    ACTIVATE = 3


class Activation(IntEnum):
    """What an epilogue applies to gates, or to all its results; in the order of `plugins/linear/spec.py`."""

    SILU = 0
    GELU = 1
    GELU_TANH = 2
    RELU = 3


class Form(IntEnum):
    """How numbers are stored."""

    FLOAT32 = 0
    BFLOAT16 = 1
    INT8 = 2
    INT4 = 3
    UINT4 = 4
    E4M3 = 5
    E2M1 = 6
    """These two of rows: float32 numbers, rounded to E4M3 or E2M1 times their scales. Of weights: their bits. E4M3 of keys and
    values: their bits, with fixed scales."""
    WIDENED_INT8 = 7
    """Of weights, which are multiplied in float32 and not as integers."""
    INT8_STATIC = 8
    """Of keys and values alone: with fixed scales."""


KV_FORMS = {
    "float32": Form.FLOAT32,
    "bfloat16": Form.BFLOAT16,
    "int8": Form.INT8,
    "fp8": Form.E4M3,
    "int8-static": Form.INT8_STATIC,
}
"""How keys and values are stored, by the precision that a manifest names."""


class Rows(IntEnum):
    """Which rows of a step a buffer has."""

    TOKENS = 0
    LOGIT_ROWS = 1


@dataclass(frozen=True, slots=True)
class Buffer:
    """Rows of activations: float32, bfloat16, int8 with a scale and a sum per group, E4M3 or E2M1.

    A scale of 0 means that scales come from the rows: int8 has one per group, E4M3 one per group or, if that is 0, per row.
    A fixed scale is that of all groups of int8 and of whole rows of E4M3, whose group is 0 then; E2M1 needs one, with
    groups of 16 whose own scales are multiples of it. See `plugins/quantize/spec.py`.
    """

    rows: Rows
    form: Form
    width: int
    """Numbers per row, padded as the weight that reads them."""
    group: int = 0
    scale: float = 0.0

    def holds_heads(self, head_dim: int, size: int) -> bool:
        """Tell whether attention can write here: each head fills whole groups, and all heads the row."""
        if self.form == Form.INT8:
            return head_dim % self.group == 0 and size == self.width
        return self.form == Form.FLOAT32

    @property
    def takes_parts(self) -> bool:
        """Whether an epilogue can write some columns of a row here: numbers of E4M3 and E2M1 are rounded row by row."""
        return self.form not in (Form.E4M3, Form.E2M1)


@dataclass(frozen=True, slots=True)
class WeightRange:
    """A packed weight in the file of weights; sizes are as padded, a group of integers is one of its input's or several."""

    offset: int
    num_bytes: int
    form: Form
    group: int
    size_out: int
    size_in: int


@dataclass(frozen=True, slots=True)
class Operation:
    """One step of the plan. Buffers and weights are indices into their tables; what an operation lacks stays empty."""

    code: Code
    rows: Rows = Rows.TOKENS
    input: int = NOTHING
    output: int = NOTHING
    other: int = NOTHING
    """Buffer that is added."""
    weight: int = NOTHING
    bias: int = NOTHING
    extra: int = NOTHING
    """Weight with the cosines of a rope; the next weight holds the sines. Of QUANTIZE: the order of a row's numbers, int32."""
    epilogue: Epilogue = Epilogue.NONE
    layer: int = 0
    size_in: int = 0
    size_out: int = 0
    num_heads: int = 0
    num_kv_heads: int = 0
    head_dim: int = 0
    rope_dim: int = 0
    """Dimensions of a head that are rotated; 0 for none."""
    eps: float = 0.0
    scale: float = 1.0
    """Of attention scores, or of a weight's stored scales."""
    window: int = 0
    """Positions that attention sees, its own included; 0 for all."""
    soft_cap: float = 0.0
    """Bound of attention scores; 0 for none."""
    activation: Activation = Activation.SILU
    """Of an epilogue that has one."""
    pairs_neighbours: bool = False
    """A rope turns dimension 2 i with 2 i + 1, not i with i + rope_dim / 2."""
    key_scale: float = 0.0
    """Of keys and values with fixed scales; 0 for others."""
    value_scale: float = 0.0

    def encode(self) -> bytes:
        """Give the 128 bytes of the file format."""
        numbers = [getattr(self, name) for name in self.__slots__]
        return _OPERATION.pack(*numbers)


@dataclass(frozen=True, slots=True)
class Geometry:
    """How the KV pool is cut, and the size of the vocabulary."""

    num_layers: int
    num_kv_heads: int
    head_dim: int
    kv_form: Form
    block_size: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class Program:
    """Buffers and operations; weights are counted by index and placed when they are written."""

    geometry: Geometry
    buffers: tuple[Buffer, ...]
    operations: tuple[Operation, ...]


def pool_width(head_dim: int) -> int:
    """Give the numbers of a key, or of a value, in the pool: heads lie there as whole vectors of 16."""
    return -(-head_dim // 16) * 16


def encode(program: Program, weights: Sequence[WeightRange], weights_bytes: int) -> bytes:
    """Give the plan's file. `weights_bytes` is the size of the whole file of weights."""
    body = b"".join(
        [
            *(_BUFFER.pack(b.rows, b.form, b.width, b.group, b.scale) for b in program.buffers),
            *(
                _WEIGHT.pack(w.offset, w.num_bytes, w.form, w.group, w.size_out, w.size_in)
                for w in weights
            ),
            *(operation.encode() for operation in program.operations),
        ]
    )
    counts = (len(program.buffers), len(weights), len(program.operations))
    g = program.geometry
    cut = (g.num_layers, g.num_kv_heads, g.head_dim, g.kv_form, g.block_size, g.vocab_size)
    total = _HEADER.size + len(body)
    return _HEADER.pack(MAGIC, VERSION, *counts, *cut, weights_bytes, total) + body


def read_header(plan: bytes) -> tuple[Geometry, int]:
    """Read how a plan cuts its pool, and the bytes of its weights' file; the engine checks everything else.

    Raises:
        ArtifactError: it is no plan, of another version, or cut short.
    """
    if len(plan) < _HEADER.size or not plan.startswith(MAGIC):
        raise ArtifactError("the engine's file is not a plan; compile the model again")
    _, version, _, _, _, *cut, weights_bytes, size = _HEADER.unpack_from(plan)
    if version != VERSION:
        raise ArtifactError(
            f"the engine's plan has version {version}, this version of Forerun reads {VERSION}; "
            "compile the model again with this version"
        )
    layers, heads, head_dim, kv_form, block_size, vocab_size = cut
    if size != len(plan) or kv_form not in tuple(Form) or weights_bytes < 1:
        raise ArtifactError("the engine's plan is cut short or altered; compile the model again")
    geometry = Geometry(layers, heads, head_dim, Form(kv_form), block_size, vocab_size)
    return geometry, weights_bytes


def decode(plan: bytes) -> tuple[list[Buffer], list[WeightRange], list[Operation]]:
    """Read the buffers of a plan, where its weights lie, and what it does with them.

    Raises:
        ArtifactError: as `read_header`.
    """
    read_header(plan)
    _, _, num_buffers, weights, operations, *_ = _HEADER.unpack_from(plan)
    begin = _HEADER.size + num_buffers * _BUFFER.size
    end = begin + weights * _WEIGHT.size
    if end + operations * _OPERATION.size != len(plan):
        raise ArtifactError("the engine's plan is cut short or altered; compile the model again")
    buffers = [
        Buffer(Rows(rows), Form(form), width, group, scale)
        for rows, form, width, group, scale in _BUFFER.iter_unpack(plan[_HEADER.size : begin])
    ]
    ranges = [
        WeightRange(offset, num_bytes, Form(form), group, size_out, size_in)
        for offset, num_bytes, form, group, size_out, size_in in _WEIGHT.iter_unpack(
            plan[begin:end]
        )
    ]
    return buffers, ranges, [Operation(*numbers) for numbers in _OPERATION.iter_unpack(plan[end:])]
