"""What the readers of a value take: the buffer that its rows are written to, and what they are multiplied with before."""

from dataclasses import dataclass

import onnx_ir as ir

from builder.errors import UnsupportedError
from builder.graph.patterns import readers
from builder.targets.cpu import reading
from builder.targets.cpu.panels import PANEL, padded
from builder.targets.cpu.plan import Buffer, Form, Rows


@dataclass(frozen=True, slots=True)
class Wanted:
    """How rows must lie for the projections that read them."""

    buffer: Buffer
    factors: ir.Value | None
    """Numbers `[in]` that rows are multiplied with before they are rounded."""
    order: ir.Value | None
    """Which of its numbers `[in]` a row consists of, before that."""

    @property
    def is_direct(self) -> bool:
        """Whether rows may be written as they are computed."""
        return self.factors is None and self.order is None


def wanted_by_readers(value: ir.Value, rows: Rows) -> Wanted:
    """Choose the form that the readers of a value take.

    Raises:
        UnsupportedError: they take different ones.
    """
    gemms = [reader for reader in readers(value) if reader.op_type == "Gemm"]
    matrices = [reading.multiplied(gemm) for gemm in gemms]
    asked = {(*m.activations, m.padded_in, m.rounding.factors, m.rounding.order) for m in matrices}
    if len(asked) != 1 or len(matrices) < len(list(readers(value))):
        names = " and ".join(sorted({m.name for m in matrices})[:3])
        raise UnsupportedError(
            f"target cpu can't round the same rows in several ways, as {names} ask for: their formats, scales, smoothing or "
            "order of inputs differ; use --target portable"
        )
    form, group, scale, width, factors, order = asked.pop()
    return Wanted(Buffer(rows, form, padded(width, PANEL), group, scale), factors, order)


def floats(rows: Rows, size: int) -> Buffer:
    """Give a buffer of float32 rows."""
    return Buffer(rows, Form.FLOAT32, padded(size, PANEL))
