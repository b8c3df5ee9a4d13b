"""The GGUF container: typed metadata, and the place, shape and type of each tensor.

Knows nothing of models. Every count is checked against the bytes that are left before it is believed,
so a damaged or forged file is refused in time and memory proportional to its size. The gguf package's own
reader makes one numpy array per metadata element (5 s for a vocabulary of 49,152) and trusts counts.
"""

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf

from builder.checkpoint.files import Bytes, FilePart, decode_text, open_file
from builder.errors import CheckpointError, UnsupportedError

VERSIONS = (2, 3)
MAX_HEADER_BYTES = 64 << 20
"""The headers of the largest vocabularies have about 20 MB."""
MAX_NAME_LENGTH = 512
MAX_DIMENSIONS = 4
MAX_LIST_LENGTH = 1 << 22
"""The largest vocabularies have half a million merges."""
STRING, ARRAY, BOOL = 8, 9, 7
SCALARS = {
    number: struct.Struct("<" + code)
    for number, code in {
        0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", BOOL: "B", 10: "Q", 11: "q", 12: "d",
    }.items()
}  # fmt: skip
SMALLEST_TENSOR_RECORD = 8 + 1 + 4 + 8 + 4 + 8
SMALLEST_KEY_RECORD = 8 + 1 + 4 + 1
DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True, eq=False)
class StoredTensor:
    """A tensor as the file holds it."""

    name: str
    shape: tuple[int, ...]
    """Rows first: `[out, in]` for a linear layer."""
    type: gguf.GGMLQuantizationType
    part: FilePart
    row_bytes: int

    @property
    def raw(self) -> Bytes:
        """Read `[rows, bytes per row]`, where the last dimension makes a row.

        Raises:
            CheckpointError: the file can't be read any more, or became shorter.
        """
        return self.part.read().reshape(-1, self.row_bytes)


@dataclass(frozen=True, slots=True)
class GgufFile:
    """One opened GGUF file."""

    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


@dataclass(frozen=True, slots=True)
class _Record:
    """A tensor's entry in the header; `offset` is relative to the data."""

    name: str
    shape: tuple[int, ...]
    type: gguf.GGMLQuantizationType
    offset: int
    row_bytes: int

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes


def read_gguf(path: Path) -> GgufFile:
    """Open a GGUF file; tensors stay unread.

    Raises:
        CheckpointError: the file is absent, truncated, or not what the format says.
        UnsupportedError: its version or byte order is another.
    """
    data = open_file(path)
    cursor = _Cursor(data.part(0, min(len(data), MAX_HEADER_BYTES)).read(), path)
    num_tensors, num_keys = _read_counts(cursor)
    metadata: dict[str, Any] = {}
    for _ in range(num_keys):
        key = cursor.name("a metadata key")
        if key in metadata:
            raise cursor.error(f"metadata key {key!r} appears twice")
        metadata[key] = cursor.value(key)
    records = [_read_record(cursor) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 0 < alignment <= 1 << 20 or alignment & (alignment - 1):
        raise cursor.error(f"general.alignment is {alignment!r}, not a power of two")
    start = -(-cursor.at // alignment) * alignment
    return GgufFile(
        metadata, _place(records, data.part(min(start, len(data)), len(data)), alignment, cursor)
    )


class _Cursor:
    """Walks through the header; every step is checked against the end of the file."""

    def __init__(self, data: Bytes, path: Path) -> None:
        self._data = data.data
        self._path = path
        self.at = 0

    @property
    def left(self) -> int:
        """Bytes not yet read."""
        return len(self._data) - self.at

    def error(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"{self._path} is damaged: {what} (near byte {self.at}); download it again"
        )

    def take(self, count: int, what: str) -> memoryview:
        if count > self.left:
            raise self.error(f"{what} needs {count} bytes, {self.left} are left")
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, kind: int, what: str) -> Any:
        packed = SCALARS[kind]
        (value,) = packed.unpack(self.take(packed.size, what))
        return value

    def count(self, what: str, smallest: int) -> int:
        """Read a count of things of at least `smallest` bytes each, and check that they can be there."""
        count: int = self.number(10, what)
        if count * smallest > self.left:
            raise self.error(f"it claims {count} for {what}, more than the file can hold")
        return count

    def string(self, what: str) -> str:
        return decode_text(bytes(self.take(self.count(what, 1), what)), f"{what} of {self._path}")

    def name(self, what: str) -> str:
        name = self.string(what)
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise self.error(f"{what} is not a name: {name[:40]!r}")
        return name

    def value(self, key: str) -> Any:
        """Read a metadata value: a number, a bool, a string, or a list of one of these."""
        kind = self.number(4, key)
        if kind == STRING:
            return self.string(key)
        if kind == ARRAY:
            return self._array(key)
        if kind not in SCALARS:
            raise self.error(f"metadata {key!r} has type {kind}")
        number = self.number(kind, key)
        return self._bool(number, key) if kind == BOOL else number

    def _array(self, key: str) -> list[Any]:
        kind = self.number(4, key)
        if kind == STRING:
            return self._strings(key)
        if kind not in SCALARS:
            raise self.error(f"metadata {key!r} is a list of type {kind}")
        packed = SCALARS[kind]
        count = self._length(key, packed.size)
        raw = self.take(count * packed.size, key)
        numbers = [number for (number,) in packed.iter_unpack(raw)]
        return [self._bool(number, key) for number in numbers] if kind == BOOL else numbers

    def _strings(self, key: str) -> list[str]:
        """Read a list of strings. Vocabularies have 100,000s, so the loop calls nothing of ours."""
        count, data, unpack = self._length(key, 8), self._data, SCALARS[10].unpack_from
        strings: list[str] = []
        for _ in range(count):
            end = self.at + 8
            if end <= len(data):
                end += unpack(data, self.at)[0]
            if end > len(data):
                raise self.error(f"a string of {key!r} reaches past the end of the file")
            try:
                strings.append(str(data[self.at + 8 : end], "utf-8"))
            except UnicodeDecodeError as error:
                raise self.error(f"a string of {key!r} is not UTF-8") from error
            self.at = end
        return strings

    def _length(self, key: str, smallest: int) -> int:
        count = self.count(key, smallest)
        if count > MAX_LIST_LENGTH:
            raise self.error(
                f"metadata {key!r} is a list of {count}, at most {MAX_LIST_LENGTH} are allowed"
            )
        return count

    def _bool(self, number: int, key: str) -> bool:
        if number not in (0, 1):
            raise self.error(f"metadata {key!r} has {number} for a bool")
        return number == 1


def _read_counts(cursor: _Cursor) -> tuple[int, int]:
    """Check magic and version; give the number of tensors and of metadata keys."""
    if bytes(cursor.take(4, "the magic")) != b"GGUF":
        raise cursor.error("it does not begin with GGUF")
    version = cursor.number(4, "the version")
    if version not in VERSIONS:
        kind = "big-endian" if version & 0xFFFF == 0 else f"version {version}"
        raise UnsupportedError(
            f"{kind} GGUF files are not supported; use version 2 or 3, little-endian"
        )
    num_tensors = cursor.count("the number of tensors", SMALLEST_TENSOR_RECORD)
    return num_tensors, cursor.count("the number of metadata keys", SMALLEST_KEY_RECORD)


def _read_record(cursor: _Cursor) -> _Record:
    """Read one tensor's entry."""
    name = cursor.name("a tensor name")
    num_dimensions = cursor.number(4, name)
    if not 0 < num_dimensions <= MAX_DIMENSIONS:
        raise cursor.error(f"tensor {name!r} has {num_dimensions} dimensions")
    shape = tuple(reversed([cursor.number(10, name) for _ in range(num_dimensions)]))
    if 0 in shape:
        raise cursor.error(f"tensor {name!r} is empty: {list(shape)}")
    number = cursor.number(4, name)
    try:
        kind = gguf.GGMLQuantizationType(number)
    except ValueError as error:
        known = ", ".join(sorted(gguf.GGMLQuantizationType.__members__))
        raise UnsupportedError(
            f"tensor {name!r} has type number {number}; known: {known}"
        ) from error
    block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if shape[-1] % block:
        raise cursor.error(
            f"rows of tensor {name!r} have {shape[-1]} numbers, not whole {kind.name} blocks"
        )
    return _Record(name, shape, kind, cursor.number(10, name), shape[-1] // block * block_bytes)


def _place(
    records: list[_Record], data: FilePart, alignment: int, cursor: _Cursor
) -> dict[str, StoredTensor]:
    """Find each tensor's bytes, and check that they follow each other with padding only."""
    tensors: dict[str, StoredTensor] = {}
    expected = 0
    for record in sorted(records, key=lambda record: record.offset):
        if record.name in tensors:
            raise cursor.error(f"tensor {record.name!r} appears twice")
        if record.offset != expected:
            raise cursor.error(
                f"tensor {record.name!r} is at {record.offset} of the data, not {expected}"
            )
        end = record.offset + record.num_bytes
        if end > len(data):
            raise cursor.error(
                f"tensor {record.name!r} ends at {end} of the data, which has {len(data)}"
            )
        tensors[record.name] = StoredTensor(
            record.name, record.shape, record.type, data.part(record.offset, end), record.row_bytes
        )
        expected = -(-end // alignment) * alignment
    if len(data) > expected:
        raise cursor.error(f"{len(data) - expected} bytes follow the last tensor")
    return {record.name: tensors[record.name] for record in records}
