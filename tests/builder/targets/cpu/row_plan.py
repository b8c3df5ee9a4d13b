"""A plan made by hand that rounds given rows and gives them back: every bit of them, but for the sign of a zero.

Rows are those of an embedding. One operation writes them to the buffer that is asked about; a weight of ones on its
diagonal widens them again, and a norm that changes nothing hands them out as logits.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.store import Artifact
from builder.targets.cpu import panels
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.plan import (
    Activation,
    Buffer,
    Code,
    Epilogue,
    Form,
    Operation,
    Program,
    Rows,
    WeightRange,
    encode,
    read_header,
)
from tests.paged_runner import PagedRunner

WIDTH = 160
"""Numbers per row: whole groups of 16 and of 32, but not of 48 or 128."""
GIVEN, WRITTEN, WIDE, LOGITS = range(4)
"""Buffers."""
TABLE, DIAGONAL, SAME, IDENTITY, FACTORS, ORDER = range(6)
"""Weights."""
FLOATS = Buffer(Rows.TOKENS, Form.FLOAT32, WIDTH)
Float32 = NDArray[np.float32]


def _is_finite(rows: Float32) -> NDArray[np.bool_]:
    finite: NDArray[np.bool_] = np.isfinite(rows).all(axis=1, keepdims=True)
    return finite


QUANTIZE = Operation(Code.QUANTIZE, input=GIVEN, output=WRITTEN, size_in=WIDTH)
RELU = Operation(
    Code.LINEAR,
    input=GIVEN,
    output=WRITTEN,
    weight=IDENTITY,
    epilogue=Epilogue.ACTIVATE,
    activation=Activation.RELU,
)
WRITERS: dict[str, tuple[Operation, Callable[[Float32], Float32]]] = {
    "quantize": (QUANTIZE, lambda rows: rows),
    "norm": (
        Operation(Code.RMS_NORM, input=GIVEN, output=WRITTEN, weight=SAME, size_in=WIDTH),
        lambda rows: rows,
    ),
    "activation": (
        RELU,
        lambda rows: np.where(_is_finite(rows), np.maximum(rows, 0), np.float32(np.nan)),
    ),
}
"""Operations that write rows, and what they do to them before."""


@dataclasses.dataclass(frozen=True)
class RowPlan:
    """Rows, the buffer that they are written to, and the operation that does it."""

    rows: Float32
    written: Buffer
    writer: Operation = QUANTIZE
    factors: Float32 | None = None
    order: NDArray[np.int32] | None = None
    shift: int = 50
    """What passes the norm unchanged lies below `2**(shift - 14)`, with all its bits above `2**(shift - 149)`."""

    def artifact(self, like: Artifact, folder: Path) -> Artifact:
        """Write the plan and its weights; all else is as in another artifact."""
        (record,) = like.manifest.engines
        geometry, _ = read_header(like.path(record.path).read_bytes())
        geometry = dataclasses.replace(geometry, vocab_size=WIDTH)
        ranges, data = self._weights()
        program = Program(geometry, self._buffers(), self._operations())
        for path, content in (
            (record.path, encode(program, ranges, len(data))),
            (str(record.weights), data),
        ):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(content)
        model = dataclasses.replace(like.manifest.model, vocab_size=WIDTH)
        return Artifact(folder, dataclasses.replace(like.manifest, model=model))

    def _buffers(self) -> tuple[Buffer, ...]:
        return FLOATS, self.written, FLOATS, dataclasses.replace(FLOATS, rows=Rows.LOGIT_ROWS)

    def _operations(self) -> tuple[Operation, ...]:
        eps = 2.0 ** (2 * self.shift)  # beside which no row's mean square counts
        writer = dataclasses.replace(self.writer, eps=eps)
        if self.factors is not None:
            writer = dataclasses.replace(writer, weight=FACTORS)
        if self.order is not None:
            writer = dataclasses.replace(writer, extra=ORDER)
        widened = Operation(
            Code.LINEAR,
            input=WRITTEN,
            output=WIDE,
            weight=DIAGONAL,
            scale=panels.stored_scale(self._diagonal[0]),
        )
        handed = Operation(Code.RMS_NORM, Rows.LOGIT_ROWS, WIDE, LOGITS, weight=SAME)
        return (
            Operation(Code.EMBEDDING, output=GIVEN, weight=TABLE, size_out=WIDTH),
            writer,
            widened,
            dataclasses.replace(handed, size_in=WIDTH, eps=eps),
            Operation(Code.ROW_ANSWERS, Rows.LOGIT_ROWS, LOGITS, size_in=WIDTH),
        )

    @property
    def _diagonal(self) -> tuple[Form, int]:
        is_int8 = self.written.form == Form.INT8
        return (Form.INT8, self.written.group) if is_int8 else (Form.FLOAT32, 0)

    def _weights(self) -> tuple[list[WeightRange], bytes]:
        table = np.zeros((WIDTH, WIDTH), np.float32)
        table[: len(self.rows), : self.rows.shape[1]] = self.rows
        form, group = self._diagonal
        identity = np.eye(WIDTH, dtype=np.float32)
        scales = np.ones((WIDTH, WIDTH // group if group else 0), np.float32)
        same = np.full(WIDTH, 2.0**self.shift, np.float32)
        factors = np.ones(WIDTH, np.float32) if self.factors is None else self.factors
        order = np.arange(WIDTH, dtype=np.int32) if self.order is None else self.order
        parts: list[tuple[Form, int, Any]] = [
            (Form.FLOAT32, 0, panels.to_panels(Form.FLOAT32, 0, (table,))),
            (
                form,
                group,
                panels.to_panels(form, group, (identity, scales) if group else (identity,)),
            ),
            (Form.FLOAT32, 0, same.view(np.uint8)),
            (Form.FLOAT32, 0, panels.to_panels(Form.FLOAT32, 0, (identity,))),
            (Form.FLOAT32, 0, factors.view(np.uint8)),
            (Form.FLOAT32, 0, order.view(np.uint8)),
        ]
        ranges, data = [], b""
        for index, (form, group, content) in enumerate(parts):
            size_out = 1 if index in (SAME, FACTORS, ORDER) else WIDTH
            ranges.append(WeightRange(len(data), len(content), form, group, size_out, WIDTH))
            data += content.tobytes() + bytes(-len(content) % 64)
        return ranges, data


def rounded(artifact: Artifact, build: str, *, threads: int = 2, chunk: int = WIDTH) -> Float32:
    """Give the rows that a plan hands out."""
    (record,) = artifact.manifest.engines
    executor = CpuExecutor(artifact, record, num_threads=threads, build=build)
    try:
        return PagedRunner(executor).whole(range(WIDTH), chunk)
    finally:
        executor.close()
