"""Quantize in plain numpy: the judge of every kernel, to the bit."""

import numpy as np
from numpy.typing import NDArray

Float32 = NDArray[np.float32]


def quantize(rows: Float32, group: int) -> tuple[NDArray[np.int8], Float32]:
    """Give int8 numbers `[T, width]` and scales `[T, width / group]`; `width` is a multiple of `group`."""
    groups = rows.reshape(len(rows), -1, group)
    peaks = np.abs(groups).max(axis=2)
    is_poisoned = ~np.isfinite(groups).all(axis=2)
    scales = np.where(is_poisoned, np.float32(np.nan), peaks / np.float32(127))
    safe = np.where((peaks > 0) & ~is_poisoned, peaks, np.float32(np.inf))
    clean = np.where(is_poisoned[:, :, None], np.float32(0), groups)
    numbers = np.rint(clean * (np.float32(127) / safe)[:, :, None]).astype(np.int8)
    return numbers.reshape(rows.shape), scales.astype(np.float32)
