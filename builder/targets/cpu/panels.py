"""Weights as panels of 16 outputs, the bytes that the kernels read; sizes and paddings of every form.

float32: numbers `[in][16]`. bfloat16: `[in / 2][16][2]`. int8: numbers `[in / 4][16][4]`, then scales `[groups][16]` in
half precision. int4 and uint4: bytes `[in / 8][16][4]`, a byte holding a number of the first four inputs of its eight in
its lower half and one of the last four in its upper half, both from 0 to 15; then scales as int8 has them, then, of uint4,
zero points `[groups][16]` in a byte each (8 for int4, not stored).

Forms that are widened to float32 have their exact scales. E4M3 and widened int8: numbers `[in][16]`, then float32 scales
`[groups][16]`; a group of 0 is the whole row. E2M1: numbers as int4 has them, then scales `[groups][16]` in a byte each, of
groups of 32 E8M0, of groups of 16 E4M3; behind the latter float32 factors `[16]`, by which all scales of an output are
multiplied.

Each part is padded to 64 bytes, outputs to 16, inputs of integers and E2M1 to whole groups (of bfloat16 to 32); what is
padded stands for zero.
"""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import num_groups
from builder.quant.floats import E2M1, E4M3, E8M0
from builder.targets.cpu.plan import Form

PANEL = 16
ALIGNMENT = 64
SCALE_FACTOR = 4096.0
"""Stored scales are multiplied by this power of two, so that half precision holds them with 11 bits: scales of
weights up to 2,000, and down to 2e-6 of the largest."""
FLOATS = (Form.FLOAT32, Form.BFLOAT16)
WIDENED = (Form.E4M3, Form.E2M1, Form.WIDENED_INT8)
"""Kept in their bits, and multiplied as the float32 numbers that they stand for."""
NIBBLES = (Form.INT4, Form.UINT4, Form.E2M1)
LAYOUTS: dict[Form, tuple[type, int]] = {
    Form.FLOAT32: (np.float32, 1),
    Form.BFLOAT16: (ml_dtypes.bfloat16, 2),
    Form.INT8: (np.int8, 4),
    Form.E4M3: (E4M3, 1),
    Form.WIDENED_INT8: (np.int8, 1),
}
"""Types of numbers of 8 bits or more, and how many of one output lie together."""
FACTOR_GROUP = 16
"""Of E2M1: whose scales are E4M3, and have a factor."""
MIDDLE = 8
"""What int4 numbers are stored above."""

Bytes = NDArray[np.uint8]
Parts = tuple[NDArray[np.generic], ...]
"""Numbers `[out, in]`; but for floats also scales `[out, groups]`; of uint4 also zero points `[out, groups]`, of E2M1 in
groups of 16 also factors `[out, 1]`."""


def stored_scale(form: Form) -> float:
    """Give what the results of a weight are multiplied by, to undo the factor of its stored scales."""
    return 1.0 if form in (*FLOATS, *WIDENED) else 1.0 / SCALE_FACTOR


def padded(size: int, multiple: int) -> int:
    """Round a size up."""
    return -(-size // multiple) * multiple


def padded_in(form: Form, group: int, size_in: int) -> int:
    """Give the inputs of a packed weight."""
    if form in WIDENED:
        return size_in  # as many as its rows have; E2M1 has room for whole groups all the same
    return padded(size_in, {Form.FLOAT32: 1, Form.BFLOAT16: 32}.get(form, group))


def sections(form: Form, group: int, size_in: int) -> tuple[int, ...]:
    """Give the bytes of the parts of one panel, less what they are padded with; `size_in` is padded."""
    if form in NIBBLES:
        numbers = PANEL * padded(size_in, group) // 2
    else:
        numbers = PANEL * size_in * np.dtype(LAYOUTS[form][0]).itemsize
    groups = num_groups(size_in, group)
    counts = (groups, 1 if form == Form.E2M1 else groups)
    types = _part_types(form, group)
    rest = (PANEL * n * kind.itemsize for n, kind in zip(counts, types, strict=False))
    return (numbers, *rest)


def panel_bytes(form: Form, group: int, size_in: int) -> int:
    """Give the size of one panel; `size_in` is padded."""
    return sum(padded(size, ALIGNMENT) for size in sections(form, group, size_in))


def to_panels(form: Form, group: int, parts: Parts) -> Bytes:
    """Pack a weight.

    Raises:
        ValueError: its scales are too large or all too small for their half precision, or something is no number.
    """
    numbers, *rest = (_pad_rows(part, padded(len(part), PANEL)) for part in parts)
    if form in WIDENED:
        _refuse_no_numbers(numbers, *rest)
    elif rest:
        rest[0] = _halves(rest[0])
    pieces = [_packed_numbers(form, group, numbers, rest)]
    for part, dtype in zip(rest, _part_types(form, group), strict=True):
        pieces.append(_by_outputs(part.astype(dtype, copy=False), 1))
    if not rest:  # panels of floats need no padding, and may be large
        return _as_bytes(pieces[0])
    count = len(numbers) // PANEL
    joined: Bytes = np.concatenate([_aligned(piece, count) for piece in pieces], axis=1)
    return joined.reshape(-1)


def from_panels(form: Form, group: int, data: Bytes, size_out: int, size_in: int) -> Parts:
    """Give back the parts `[size_out, ...]` that were packed: what `to_panels` takes, without what was padded.

    Scales of integers are float32, as they were stored; integers of 4 bits have 8.
    """
    width = padded_in(form, group, size_in)
    panels = data.reshape(padded(size_out, PANEL) // PANEL, panel_bytes(form, group, width))
    pieces, begin = [], 0
    for size in sections(form, group, width):
        pieces.append(np.ascontiguousarray(panels[:, begin : begin + size]))
        begin += padded(size, ALIGNMENT)
    parts = [_unpacked_numbers(form, group, pieces[0], width)[:, :size_in]]
    for piece, dtype in zip(pieces[1:], _part_types(form, group), strict=True):
        values = piece.view(dtype)
        parts.append(_to_outputs(values, values.shape[1] // PANEL, 1))
    if len(parts) > 1 and form not in WIDENED:
        parts[1] = parts[1].astype(np.float32) / np.float32(SCALE_FACTOR)
    return tuple(np.ascontiguousarray(part[:size_out]) for part in parts)


def _part_types(form: Form, group: int) -> tuple[np.dtype[Any], ...]:
    """Give the stored types of what comes behind the numbers."""
    types: dict[Form, tuple[type, ...]] = {
        Form.FLOAT32: (),
        Form.BFLOAT16: (),
        Form.UINT4: (np.float16, np.uint8),
        Form.E4M3: (np.float32,),
        Form.E2M1: (E4M3, np.float32) if group == FACTOR_GROUP else (E8M0,),
        Form.WIDENED_INT8: (np.float32,),
    }
    return tuple(np.dtype(name) for name in types.get(form, (np.float16,)))


def _refuse_no_numbers(*parts: NDArray[np.generic]) -> None:
    for part in parts:
        if part.dtype != E2M1 and not np.isfinite(part).all():
            raise ValueError("a number or a scale is none")


def _packed_numbers(
    form: Form, group: int, numbers: NDArray[np.generic], rest: list[NDArray[np.generic]]
) -> NDArray[np.generic]:
    if form in NIBBLES:
        return _nibbles(form, numbers, rest, padded(numbers.shape[1], group))
    dtype, together = LAYOUTS[form]
    return _by_outputs(_widened(numbers, padded_in(form, group, numbers.shape[1]), dtype), together)


def _unpacked_numbers(form: Form, group: int, data: Bytes, size_in: int) -> NDArray[np.generic]:
    if form not in NIBBLES:
        dtype, together = LAYOUTS[form]
        return _to_outputs(data.view(dtype), size_in, together)
    width = padded(size_in, group)
    eights = data.reshape(-1, width // 8, 1, PANEL, 4)
    codes = _to_outputs(np.concatenate([eights & 15, eights >> 4], axis=2), width, 4)
    if form == Form.INT4:
        return codes.view(np.int8) - np.int8(MIDDLE)
    return codes.view(E2M1) if form == Form.E2M1 else codes


def _nibbles(
    form: Form, numbers: NDArray[np.generic], rest: list[NDArray[np.generic]], size_in: int
) -> Bytes:
    """Give bytes `[panels, in / 8, 16, 4]`."""
    if form == Form.E2M1:
        numbers = numbers.view(np.uint8)
    lifted = _widened(numbers, size_in, np.int8)
    if form == Form.INT4:
        lifted += MIDDLE
    if form == Form.UINT4:  # padding stands for zero, so it is the zero point
        lifted[:, numbers.shape[1] :] = rest[1][:, -1:].astype(np.int8)
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
    return stored.astype(np.float16)


def _by_outputs(values: NDArray[np.generic], together: int) -> NDArray[np.generic]:
    """Turn `[out, n]` to `[panels, n / together, 16, together]`."""
    split = values.reshape(-1, PANEL, values.shape[1] // together, together)
    return np.ascontiguousarray(split.transpose(0, 2, 1, 3))


def _to_outputs(values: NDArray[np.generic], size: int, together: int) -> NDArray[np.generic]:
    """Turn `[panels, n / together, 16, together]`, of any shape, back to `[out, n]`."""
    split = values.reshape(-1, size // together, PANEL, together).transpose(0, 2, 1, 3)
    return split.reshape(-1, size)


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
