"""Weights in the form that the kernels read: panels of 16 outputs, and matrices that share an input side by side.

An int8 panel is `[in / 4][16][4]` numbers and then `[groups][16]` scales in half precision, padded to 64 bytes. A
float32 panel is `[in][16]`. Sizes are padded with zeros: outputs to 16, inputs of int8 to whole groups.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from builder.errors import BuildError
from builder.targets.cpu.plan import Form

PANEL = 16
ALIGNMENT = 64
SCALE_FACTOR = 4096.0
"""Stored scales are multiplied by this power of two, so that half precision holds them with 11 bits: scales of
weights up to 2,000, and down to 2e-6 of the largest."""

Bytes = NDArray[np.uint8]
Float32 = NDArray[np.float32]
Parts = tuple[NDArray[np.generic], NDArray[np.generic]]


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight `[out, in]` of the graph; its numbers are read when they are packed."""

    name: str
    form: Form
    group: int
    """Of int8; 0 otherwise."""
    size_out: int
    size_in: int
    read: Callable[[], Parts]
    """Numbers `[out, in]` and, of int8, scales `[out, groups]`."""


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


def stored_scale(form: Form) -> float:
    """Give what the results of a weight are multiplied by, to undo the factor of its stored scales."""
    return 1.0 / SCALE_FACTOR if form == Form.INT8 else 1.0


def pack_vector(name: str, size: int, read: Callable[[], NDArray[np.generic]]) -> Packed:
    """Pack float32 numbers in their own order, padded with zeros."""
    padded = -(-size // PANEL) * PANEL

    def read_padded() -> Bytes:
        values = np.zeros(padded, np.float32)
        values[:size] = read().ravel()
        return values.view(np.uint8)

    return Packed(name, Form.FLOAT32, 0, 1, padded, 4 * padded, read_padded)


def pack_stacked(matrices: Sequence[Matrix]) -> Packed:
    """Pack matrices of one input one after another."""
    first = matrices[0]
    size_out = sum(matrix.size_out for matrix in matrices)
    name = "+".join(matrix.name for matrix in matrices)
    return _packed(name, first, size_out, lambda: _join(matrices, np.concatenate))


def pack_gated(gate: Matrix, up: Matrix) -> Packed:
    """Pack 16 outputs of the gate, the same 16 of its factor, and so on; both padded to whole groups."""
    half = gated_size(gate)

    def interleave(parts: Sequence[NDArray[np.generic]]) -> NDArray[np.generic]:
        padded = [
            _pad(part, half, part.shape[1]).reshape(-1, PANEL, part.shape[1]) for part in parts
        ]
        rows: NDArray[np.generic] = np.stack(padded, axis=1).reshape(2 * half, -1)
        return rows

    return _packed(f"{gate.name}+{up.name}", gate, 2 * half, lambda: _join((gate, up), interleave))


def gated_size(gate: Matrix) -> int:
    """Give the outputs of a gated pair, padded."""
    whole = gate.group or PANEL
    return -(-gate.size_out // whole) * whole


def interleave_vectors(gate: NDArray[np.generic], up: NDArray[np.generic], half: int) -> Float32:
    """Give the biases of a gated pair in the order of `pack_gated`."""
    padded = [_pad(part.reshape(-1, 1), half, 1).reshape(-1, PANEL) for part in (gate, up)]
    mixed: Float32 = np.stack(padded, axis=1).astype(np.float32).ravel()
    return mixed


def _packed(name: str, like: Matrix, size_out: int, read: Callable[[], Parts]) -> Packed:
    size_out, size_in = -(-size_out // PANEL) * PANEL, like.size_in
    if like.form == Form.FLOAT32:
        num_bytes = 4 * size_out * size_in
        return Packed(
            name, like.form, 0, size_out, size_in, num_bytes, lambda: _float_panels(read()[0])
        )
    size_in = -(-size_in // like.group) * like.group
    scale_bytes = _aligned(2 * PANEL * (size_in // like.group))
    num_bytes = size_out // PANEL * (PANEL * size_in + scale_bytes)
    return Packed(
        name,
        like.form,
        like.group,
        size_out,
        size_in,
        num_bytes,
        lambda: _int8_panels(name, *read(), group=like.group),
    )


def _join(
    matrices: Sequence[Matrix],
    join: Callable[[Sequence[NDArray[np.generic]]], NDArray[np.generic]],
) -> Parts:
    parts = [matrix.read() for matrix in matrices]
    numbers = join([part[0] for part in parts])
    return numbers, join([part[1] for part in parts]) if parts[0][1].size else parts[0][1]


def _float_panels(weight: NDArray[np.generic]) -> Bytes:
    padded = _pad(
        weight.astype(np.float32, copy=False), -(-len(weight) // PANEL) * PANEL, weight.shape[1]
    )
    panels = padded.reshape(-1, PANEL, padded.shape[1]).transpose(0, 2, 1)
    return np.ascontiguousarray(panels).view(np.uint8).reshape(-1)


def _int8_panels(
    name: str, packed: NDArray[np.generic], scales: NDArray[np.generic], *, group: int
) -> Bytes:
    size_out = -(-len(packed) // PANEL) * PANEL
    size_in = scales.shape[1] * group
    numbers = _pad(packed, size_out, size_in).reshape(-1, PANEL, size_in // 4, 4)
    numbers = numbers.transpose(0, 2, 1, 3).reshape(size_out // PANEL, -1).view(np.uint8)
    stored = _pad(scales, size_out, scales.shape[1]).astype(np.float32) * np.float32(SCALE_FACTOR)
    if not np.abs(stored).max(initial=0) < np.finfo(np.float16).max:
        raise BuildError(
            f"{name} has weights that int8 can't hold: they are too large or no numbers"
        )
    halves = stored.astype(np.float16).reshape(-1, PANEL, scales.shape[1]).transpose(0, 2, 1)
    scale_bytes = np.ascontiguousarray(halves).view(np.uint8).reshape(len(numbers), -1)
    filled = np.zeros((len(numbers), _aligned(scale_bytes.shape[1])), np.uint8)
    filled[:, : scale_bytes.shape[1]] = scale_bytes
    panels: Bytes = np.concatenate([numbers, filled], axis=1).reshape(-1)
    return panels


def _pad(values: NDArray[np.generic], size_out: int, size_in: int) -> NDArray[np.generic]:
    if values.shape == (size_out, size_in):
        return values
    padded = np.zeros((size_out, size_in), values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT
