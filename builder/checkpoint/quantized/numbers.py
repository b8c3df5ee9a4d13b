"""Numbers as files pack them: several in a word of 32 bits or two in a byte, lowest bits first."""

from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.tensors import FLOATS, Tensor

TYPES: dict[str, Any] = {
    "I8": np.int8,
    "U8": np.uint8,
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
    "F8_E4M3": ml_dtypes.float8_e4m3fn,
}
"""Types of stored numbers that are no plain floats."""
Codes = NDArray[np.uint8]


def numbers(tensor: Tensor) -> NDArray[Any]:
    """Read a tensor in its own type; plain floats as float32.

    Raises:
        CheckpointError: its file became shorter.
    """
    if tensor.stored in FLOATS:
        return tensor.load()
    assert tensor.raw is not None, "only tensors of a safetensors file are read raw"
    values: NDArray[Any] = tensor.raw().view(TYPES[tensor.stored]).reshape(tensor.shape)
    return values


def codes(words: NDArray[Any], bits: int) -> Codes:
    """Unpack the 4 or 8 bits of each number: `[rows, n]` words of any size to `[rows, n * bits in a word / bits]`."""
    rows = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return rows
    found = np.empty((*rows.shape, 2), np.uint8)
    found[..., 0] = rows & 15
    found[..., 1] = rows >> 4
    return found.reshape(len(rows), -1)


def signed(lifted: Codes, bits: int) -> NDArray[Any]:
    """Turn codes that stand above the middle of their range to int8 or int4."""
    lowered = lifted.view(np.int8) - np.int8(8) if bits == 4 else (lifted ^ 0x80).view(np.int8)
    return lowered.astype(ml_dtypes.int4) if bits == 4 else lowered
