"""Weights as the engine maps them: matrices that share an input lie in one weight, one after another or alternating.

How the numbers lie in memory is said in `panels.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from builder.errors import BuildError
from builder.graph.rounding import Rounding
from builder.targets.cpu import panels
from builder.targets.cpu.panels import PANEL, Bytes, Parts, padded
from builder.targets.cpu.plan import Form

MOST_ACTIVATIONS = 64
"""Activations that share a scale, where the weights that share one are more."""

ROW_FORMS = {ir.DataType.FLOAT8E4M3FN: Form.E4M3, ir.DataType.FLOAT4E2M1: Form.E2M1}
"""Forms of rows that are multiplied in float32, by what they are rounded to."""

Float32 = NDArray[np.float32]
Join = Callable[[Sequence[NDArray[np.generic]]], NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight `[out, in]` of the graph; its numbers are read when they are packed."""

    name: str
    form: Form
    group: int
    """Inputs that share a scale; 0 for floats."""
    size_out: int
    size_in: int
    read: Callable[[], Parts]
    format: str = ""
    """Format of its numbers and rows, if it is not that of its form."""
    rounding: Rounding = field(default_factory=Rounding)
    """How the rows are rounded that it is multiplied with."""

    @property
    def precision(self) -> str:
        """What the numbers are."""
        return self.format or self.form.name.lower()

    @property
    def padded_in(self) -> int:
        """Inputs of the packed weight, and numbers in a row of its input."""
        return panels.padded_in(self.form, self.group, self.size_in)

    @property
    def activations(self) -> tuple[Form, int, float]:
        """Form, group and fixed scale of the rows that are multiplied with this weight; scale 0 where they have their own."""
        rounding = self.rounding
        if rounding.element in ROW_FORMS:
            return ROW_FORMS[rounding.element], rounding.group, rounding.scale
        if self.form in panels.FLOATS:
            return self.form, 0, 0.0
        return Form.INT8, min(self.group, MOST_ACTIVATIONS), rounding.scale


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight as the engine maps it."""

    name: str
    form: Form
    group: int
    size_out: int
    size_in: int
    num_bytes: int
    read: Callable[[], Bytes]


def pack_vector(name: str, size: int, read: Callable[[], NDArray[np.generic]]) -> Packed:
    """Pack float32 numbers in their own order, padded with zeros to `size` or somewhat more."""
    width = padded(size, PANEL)

    def read_padded() -> Bytes:
        values, numbers = np.zeros(width, np.float32), read().ravel()
        values[: len(numbers)] = numbers
        return values.view(np.uint8)

    return Packed(name, Form.FLOAT32, 0, 1, width, 4 * width, read_padded)


def pack_stacked(matrices: Sequence[Matrix]) -> Packed:
    """Pack matrices of one input one after another."""
    size_out = sum(matrix.size_out for matrix in matrices)
    return _packed(matrices, size_out, np.concatenate)


def pack_gated(gate: Matrix, up: Matrix, half: int) -> Packed:
    """Pack 16 outputs of the gate, the same 16 of its factor, and so on; both padded to `half` outputs."""

    def interleave(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        return _interleaved(parts, half)

    return _packed((gate, up), 2 * half, interleave)


def pack_widened(matrix: Matrix, width: int) -> Packed:
    """Pack a matrix, padded to `width` outputs."""
    return _packed((matrix,), width, lambda parts: _interleaved(parts, width))


def interleave_vectors(gate: NDArray[np.generic], up: NDArray[np.generic], half: int) -> Float32:
    """Give the biases of a gated pair in the order of `pack_gated`."""
    columns = [part.reshape(-1, 1) for part in (gate, up)]
    return _interleaved(columns, half).astype(np.float32).ravel()


def _interleaved(parts: Sequence[NDArray[np.generic]], half: int) -> NDArray[np.generic]:
    width = parts[0].shape[1]
    filled = np.zeros((half // PANEL, len(parts), PANEL, width), parts[0].dtype)
    for index, part in enumerate(parts):
        rows = np.zeros((half, width), part.dtype)
        rows[: len(part)] = part
        filled[:, index] = rows.reshape(-1, PANEL, width)
    return filled.reshape(-1, width)


def _packed(matrices: Sequence[Matrix], size_out: int, join: Join) -> Packed:
    first, name = matrices[0], "+".join(matrix.name for matrix in matrices)
    size_out = padded(size_out, PANEL)
    num_bytes = size_out // PANEL * panels.panel_bytes(first.form, first.group, first.padded_in)

    def read() -> Bytes:
        parts = zip(*(matrix.read() for matrix in matrices), strict=True)
        try:
            return panels.to_panels(first.form, first.group, tuple(join(part) for part in parts))
        except ValueError as error:
            raise BuildError(
                f"{name} has weights that {first.form.name.lower()} can't hold: they are too large, all too small, or no numbers"
            ) from error

    return Packed(name, first.form, first.group, size_out, first.padded_in, num_bytes, read)
