"""Numbers of few bits side by side in words, lowest bits first: what `checkpoint.quantized.numbers` unpacks."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

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
