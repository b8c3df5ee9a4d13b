"""Weights as panels of 16 outputs, the bytes that the kernels read; sizes and paddings of every form.

float32: numbers `[in][16]`. bfloat16: `[in / 2][16][2]`. int8: numbers `[in / 4][16][4]`, then scales `[groups][16]` in
half precision. int4 and uint4: bytes `[in / 8][16][4]`, a byte holding a number of the first four inputs of its eight in
its lower half and one of the last four in its upper half, both from 0 to 15; then scales as int8 has them, then, of uint4,
zero points `[groups][16]` in a byte each (8 for int4, not stored). Scales and zero points are padded to 64 bytes, outputs
to 16, inputs to whole groups (bfloat16: to 32); what is padded stands for zero.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.targets.cpu.plan import Form

PANEL = 16
ALIGNMENT = 64
SCALE_FACTOR = 4096.0
"""Stored scales are multiplied by this power of two, so that half precision holds them with 11 bits: scales of
weights up to 2,000, and down to 2e-6 of the largest."""
BITS = {Form.FLOAT32: 32, Form.BFLOAT16: 16, Form.INT8: 8, Form.INT4: 4, Form.UINT4: 4}
FLOATS = (Form.FLOAT32, Form.BFLOAT16)
MIDDLE = 8
"""What int4 numbers are stored above."""

Bytes = NDArray[np.uint8]
Parts = tuple[NDArray[np.generic], ...]
"""Numbers `[out, in]`; of integers also scales `[out, groups]`; of uint4 also zero points `[out, groups]`."""


def stored_scale(form: Form) -> float:
    """Give what the results of a weight are multiplied by, to undo the factor of its stored scales."""
    return 1.0 if form in FLOATS else 1.0 / SCALE_FACTOR


def padded(size: int, multiple: int) -> int:
    """Round a size up."""
    return -(-size // multiple) * multiple


def padded_in(form: Form, group: int, size_in: int) -> int:
    """Give the inputs of a packed weight."""
    return padded(size_in, {Form.FLOAT32: 1, Form.BFLOAT16: 32}.get(form, group))


def panel_bytes(form: Form, group: int, size_in: int) -> int:
    """Give the size of one panel; `size_in` is padded."""
    numbers = PANEL * size_in * BITS[form] // 8
    if form in FLOATS:
        return numbers
    groups = size_in // group
    zeros = padded(PANEL * groups, ALIGNMENT) if form == Form.UINT4 else 0
    return numbers + padded(2 * PANEL * groups, ALIGNMENT) + zeros


def to_panels(form: Form, group: int, parts: Parts) -> Bytes:
    """Pack a weight.

    Raises:
        ValueError: its scales are too large or all too small for their half precision, or no numbers.
    """
    numbers, *rest = (_pad_rows(part, padded(len(part), PANEL)) for part in parts)
    size_in = padded_in(form, group, numbers.shape[1])
    if form == Form.FLOAT32:
        return _as_bytes(_by_outputs(_widened(numbers, size_in, np.float32), 1))
    if form == Form.BFLOAT16:
        return _as_bytes(_by_outputs(_widened(numbers, size_in, ml_dtypes.bfloat16), 2))
    zeros = rest[1] if form == Form.UINT4 else None
    if form == Form.INT8:
        panels = _as_bytes(_by_outputs(_widened(numbers, size_in, np.int8), 4))
    else:
        panels = _as_bytes(_nibbles(numbers, zeros, size_in))
    count = len(numbers) // PANEL
    pieces = [panels.reshape(count, -1), _aligned(_halves(rest[0]), count)]
    if zeros is not None:
        pieces.append(_aligned(_by_outputs(zeros.astype(np.uint8), 1), count))
    joined: Bytes = np.concatenate(pieces, axis=1).reshape(-1)
    return joined


def _nibbles(
    numbers: NDArray[np.generic], zeros: NDArray[np.generic] | None, size_in: int
) -> Bytes:
    """Give bytes `[panels, in / 8, 16, 4]`."""
    lifted = _widened(numbers, size_in, np.int8)
    if zeros is None:
        lifted += MIDDLE
    else:  # padding stands for zero, so it is the zero point
        lifted[:, numbers.shape[1] :] = zeros[:, -1:].astype(np.int8)
    eights = lifted.view(np.uint8).reshape(-1, PANEL, size_in // 8, 2, 4).transpose(0, 2, 3, 1, 4)
    joined: Bytes = (eights[:, :, 0] | (eights[:, :, 1] << 4)).astype(np.uint8, copy=False)
    return joined


def _halves(scales: NDArray[np.generic]) -> NDArray[np.generic]:
    with np.errstate(over="ignore"):  # told below, by the name of the weight
        stored = scales.astype(np.float32) * np.float32(SCALE_FACTOR)
    largest, half = np.abs(stored).max(initial=0), np.finfo(np.float16)
    if not largest < half.max:
        raise ValueError("a scale is too large or no number")
    if 0 < largest < half.smallest_normal:
        raise ValueError("all scales are too small")
    return _by_outputs(stored.astype(np.float16), 1)


def _by_outputs(values: NDArray[np.generic], together: int) -> NDArray[np.generic]:
    """Turn `[out, n]` to `[panels, n / together, 16, together]`."""
    split = values.reshape(-1, PANEL, values.shape[1] // together, together)
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3))


def _aligned(values: NDArray[np.generic], count: int) -> Bytes:
    rows = _as_bytes(values).reshape(count, -1)
    filled = np.zeros((count, padded(rows.shape[1], ALIGNMENT)), np.uint8)
    filled[:, : rows.shape[1]] = rows
    return filled


def _as_bytes(values: NDArray[np.generic]) -> Bytes:
    return values.reshape(-1).view(np.uint8)


def _widened(values: NDArray[np.generic], size_in: int, dtype: type) -> NDArray[Any]:
    wide: NDArray[Any] = np.zeros((len(values), size_in), dtype)
    wide[:, : values.shape[1]] = values
    return wide


def _pad_rows(values: NDArray[np.generic], size_out: int) -> NDArray[np.generic]:
    if len(values) == size_out:
        return values
    rows = np.zeros((size_out, values.shape[1]), values.dtype)
    rows[: len(values)] = values
    return rows
