"""Writes GGUF files byte by byte, so that tests can also write ones that no library would.

Layout: magic, version, number of tensors, number of keys; the keys; one record per tensor; padding; data.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

BOOL, STRING, ARRAY = 7, 8, 9
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}


@dataclass(frozen=True, slots=True)
class Typed:
    """A metadata value with an explicit type number; plain Python values get the usual one."""

    kind: int
    value: Any
    element: int | None = None


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor as a file holds it: type number, shape with the rows first, raw bytes."""

    kind: int
    shape: tuple[int, ...]
    data: bytes

    @classmethod
    def from_numbers(cls, values: NDArray[np.float32], kind: str = "F32") -> "Stored":
        """Store `values` as block type `kind`, quantized by the gguf package."""
        import gguf  # noqa: PLC0415 (most users of this module write no block types)

        number = gguf.GGMLQuantizationType[kind]
        return cls(int(number), values.shape, gguf.quantize(values, number).tobytes())


def write_gguf(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, Stored], *, version: int = 3
) -> Path:
    """Write one GGUF file, with data aligned to `general.alignment` (32), and give its path."""
    alignment = metadata.get("general.alignment", 32)
    head = bytearray(b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)))
    for key, value in metadata.items():
        head += _text(key) + _pack(value, with_type=True)
    data = bytearray()
    for name, tensor in tensors.items():
        head += _text(name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", tensor.kind, len(data))
        data += tensor.data + bytes(-len(tensor.data) % alignment)
    path.write_bytes(head + bytes(-len(head) % alignment) + data)
    return path


def _text(text: str | bytes) -> bytes:
    raw = text.encode("utf-8") if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def _typed(value: Any) -> Typed:
    if isinstance(value, Typed):
        return value
    if isinstance(value, list):
        element = _typed(value[0]).kind if value else STRING
        return Typed(ARRAY, value, 5 if element == 4 else element)
    kinds = {bool: BOOL, int: 4, float: 6, str: STRING, bytes: STRING}
    return Typed(kinds[type(value)], value)


def _pack(value: Any, *, with_type: bool = False) -> bytes:
    typed = _typed(value)
    prefix = struct.pack("<I", typed.kind) if with_type else b""
    if typed.kind == STRING:
        return prefix + _text(typed.value)
    if typed.kind == ARRAY:
        element = typed.element if typed.element is not None else STRING
        items = b"".join(_pack(Typed(element, item)) for item in typed.value)
        return prefix + struct.pack("<IQ", element, len(typed.value)) + items
    return prefix + struct.pack("<" + SCALARS[typed.kind], typed.value)
