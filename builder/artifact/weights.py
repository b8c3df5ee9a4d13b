"""Weight files of artifacts: safetensors, written tensor by tensor; engines map them.

Layout (safetensors): a little-endian uint64 with the header's length, a JSON header of name to dtype, shape
and byte range, then the numbers without gaps. The widest element types come first, so that every tensor
is aligned to its element.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

HEADER_ALIGNMENT = 64
DTYPES: dict[str, Any] = {
    "F32": np.float32,
    "F16": np.float16,
    "BF16": np.uint16,
    "I8": np.int8,
    "U8": np.uint8,
    "I32": np.int32,
    "I64": np.int64,
    "F8_E4M3": np.uint8,
    "F8_E8M0": np.uint8,
}
"""Types that numbers are handed over in, by safetensors name; those without a numpy type as their bits."""


@dataclass(frozen=True, slots=True)
class WeightSpec:
    """A tensor to be written: its description, and a function that reads it when its turn comes."""

    name: str
    dtype: str
    """Safetensors name of the element type."""
    shape: tuple[int, ...]
    read: Callable[[], NDArray[np.generic]]

    @property
    def size_bytes(self) -> int:
        """Bytes of the numbers."""
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(DTYPES[self.dtype]).itemsize


def write_weights(
    path: Path,
    weights: Sequence[WeightSpec],
    advance: Callable[[int], None] = lambda _: None,
    *,
    metadata: Mapping[str, str] | None = None,
) -> dict[str, tuple[int, int]]:
    """Write tensors one by one, so that only one is in memory, and give each one's (offset, length) in the file.

    `metadata` goes into the header: libraries that read the file ask it who may.
    """
    ordered = sorted(weights, key=lambda weight: -np.dtype(DTYPES[weight.dtype]).itemsize)
    header, ranges = _layout(ordered, metadata)
    with path.open("wb") as stream:
        stream.write(header)
        for weight in ordered:
            values = np.asarray(weight.read(), DTYPES[weight.dtype], order="C")  # scalars too
            assert values.shape == weight.shape, (
                f"{weight.name}: {values.shape}, not {weight.shape}"
            )
            stream.write(values.data)
            advance(weight.size_bytes)
    return ranges


def _layout(
    weights: Iterable[WeightSpec], metadata: Mapping[str, str] | None
) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Give the header's bytes, and the absolute (offset, length) of each tensor."""
    entries: dict[str, dict[str, Any]] = {}
    end = 0
    for weight in weights:
        start, end = end, end + weight.size_bytes
        entries[weight.name] = {
            "dtype": weight.dtype,
            "shape": list(weight.shape),
            "data_offsets": [start, end],
        }
    head = {} if metadata is None else {"__metadata__": metadata}
    text = json.dumps({**head, **entries}, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % HEADER_ALIGNMENT)
    base = 8 + len(text)
    ranges = {
        name: (base + entry["data_offsets"][0], entry["data_offsets"][1] - entry["data_offsets"][0])
        for name, entry in entries.items()
    }
    return len(text).to_bytes(8, "little") + text, ranges
