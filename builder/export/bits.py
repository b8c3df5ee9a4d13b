"""Numbers as files of checkpoints have them: of few bits side by side in words, lowest bits first, and scales that many share."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.weights import WeightSpec
from builder.errors import UnsupportedError

Codes = NDArray[np.uint8]
BITS_OF_WORD = 32


def nibbles(codes: Codes) -> Codes:
    """Put two numbers of 4 bits in a byte: `[rows, n]` to `[rows, n / 2]`; n is even."""
    joined: Codes = codes[:, ::2] | (codes[:, 1::2] << np.uint8(4))
    return joined


def words(codes: Codes, bits: int) -> NDArray[np.int32]:
    """Put numbers of 4 or 8 bits in words: `[rows, n]` to int32 `[rows, words]`, the last filled with zeros."""
    together = BITS_OF_WORD // bits
    wide = np.zeros((len(codes), num_words(codes.shape[1], bits) * together), np.uint8)
    wide[:, : codes.shape[1]] = codes
    return np.ascontiguousarray(nibbles(wide) if bits == 4 else wide).view("<i4")


def num_words(count: int, bits: int) -> int:
    """Count the words that hold some numbers."""
    return -(-count * bits // BITS_OF_WORD)


def lifted(numbers: NDArray[Any], bits: int) -> Codes:
    """Give signed numbers above the lowest of their range."""
    codes: Codes = (numbers.astype(np.int16) + (1 << (bits - 1))).astype(np.uint8)
    return codes


def e4m3(name: str, shape: tuple[int, ...], read: Callable[[], NDArray[np.generic]]) -> WeightSpec:
    """Give a tensor of E4M3 numbers in their bits."""
    return WeightSpec(name, "F8_E4M3", shape, lambda: read().view(np.uint8).reshape(shape))


def one_of_each(scales: NDArray[np.generic], count: int, name: str) -> NDArray[np.generic]:
    """Give of each `count` outputs of a weight the scales `[groups]` that they share, `[out / count, groups]`.

    Raises:
        UnsupportedError: they don't share them.
    """
    shared = scales[::count]
    if not np.array_equal(np.repeat(shared, count, axis=0)[: len(scales)], scales):
        raise UnsupportedError(
            f"{name} has more scales than one for each {min(count, len(scales))} outputs, which the layout of its format can't hold; "
            "nothing was written"
        )
    return shared
