"""One safetensors file: 8 bytes of header length, a JSON header, then the tensors back to back.

The header is checked hard before any tensor exists: every byte of the data belongs to exactly one tensor,
so that a truncated, spliced or forged file can't pass.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from builder.checkpoint.files import FilePart, open_file, parse_json
from builder.checkpoint.tensors import Float32, Tensor, widen
from builder.errors import CheckpointError, UnsupportedError, unknown_name

MAX_HEADER_BYTES = 16 << 20
"""About 100,000 tensors; shards of the largest models have a few thousand."""
MAX_NAME_LENGTH = 512
METADATA = "__metadata__"

# Bits and our name of each number type; types without a name here can be spared, never read.
DTYPES = {
    "F32": (32, "float32"),
    "F16": (16, "float16"),
    "BF16": (16, "bfloat16"),
    "F64": (64, "F64"),
    **{name: (64, name) for name in ("I64", "U64", "C64")},
    **{name: (32, name) for name in ("I32", "U32")},
    **{name: (16, name) for name in ("I16", "U16")},
    **{name: (8, name) for name in ("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E8M0")},
    **{name: (8, name) for name in ("F8_E4M3FNUZ", "F8_E5M2FNUZ")},
    **{name: (6, name) for name in ("F6_E2M3", "F6_E3M2")},
    "F4": (4, "F4"),
}


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Open a safetensors file and give its tensors by name, lazily.

    Raises:
        CheckpointError: the file is absent, truncated, or its header is not what the format says.
        UnsupportedError: a tensor has an unknown number type.
    """
    data = open_file(path)
    header, start = _read_header(data)
    body = data.part(start, len(data))
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        if name == METADATA:
            continue
        tensor, begin, end = _read_entry(name, entry, body, path)
        tensors[name] = tensor
        spans.append((begin, end, name))
    _check_spans(spans, len(body), path)
    return tensors


def read_metadata(path: Path) -> dict[str, Any]:
    """Read what a file says of itself beside its tensors; nothing where it says nothing.

    Raises:
        CheckpointError: the file is absent or truncated, or no safetensors file.
    """
    header, _ = _read_header(open_file(path))
    metadata = header.get(METADATA)
    return metadata if isinstance(metadata, dict) else {}


def _read_header(data: FilePart) -> tuple[dict[str, Any], int]:
    """Parse the header, and say where the data begins."""
    path = data.path
    if len(data) < 8:
        raise CheckpointError(
            f"{path} has {len(data)} bytes, too few for safetensors; download it again"
        )
    length = int.from_bytes(data.part(0, 8).read().tobytes(), "little")
    if length > MAX_HEADER_BYTES:
        raise CheckpointError(
            f"{path} is not a safetensors file: it claims a header of {length} bytes "
            f"(at most {MAX_HEADER_BYTES} are allowed)"
        )
    if 8 + length > len(data):
        raise CheckpointError(
            f"{path} is truncated: its header alone needs {8 + length} bytes, it has {len(data)}; "
            "download it again"
        )
    raw = data.part(8, 8 + length).read().tobytes()
    return parse_json(raw, f"the header of {path}"), 8 + length


def _read_entry(name: str, entry: Any, body: FilePart, path: Path) -> tuple[Tensor, int, int]:
    """Check one header entry; give the tensor and where its bytes begin and end."""
    where = f"tensor {name[:80]!r} of {path}"
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise CheckpointError(f"{where} has no name that could be meant")
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError(f"{where} must have dtype, shape and data_offsets, and nothing else")
    shape, offsets, dtype = entry["shape"], entry["data_offsets"], entry["dtype"]
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise UnsupportedError(f"{where}: {unknown_name('number type', str(dtype)[:32], DTYPES)}")
    if not _are_counts(shape) or len(shape) > 8:
        raise CheckpointError(f"{where} has a shape that is not a short list of sizes")
    if not _are_counts(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise CheckpointError(f"{where} has data_offsets that are not a begin and an end")
    bits, stored = DTYPES[dtype]
    begin, end = offsets
    if math.prod(shape) * bits != (end - begin) * 8:
        raise CheckpointError(
            f"{where} has {end - begin} bytes, which does not fit {dtype} {shape}"
        )
    if end > len(body):
        raise CheckpointError(
            f"{path} is truncated: {name!r} ends at byte {end} of the data, which has {len(body)}; "
            "download it again"
        )
    return _tensor(name, tuple(shape), stored, body.part(begin, end)), begin, end


def _tensor(name: str, shape: tuple[int, ...], stored: str, part: FilePart) -> Tensor:
    def load() -> Float32:
        return widen(part.read(), name, stored).reshape(shape)

    return Tensor(name, shape, stored, len(part), load, part.read)


def _are_counts(values: Any) -> bool:
    """Say whether `values` is a list of whole numbers that fit a file."""
    return isinstance(values, list) and all(
        type(value) is int and 0 <= value < np.iinfo(np.int64).max for value in values
    )


def _check_spans(spans: list[tuple[int, int, str]], size: int, path: Path) -> None:
    """Check that the tensors cover the data once, without holes."""
    reached = 0
    for begin, end, name in sorted(spans):
        if begin != reached:
            kind = "overlaps another tensor" if begin < reached else "leaves a hole before it"
            raise CheckpointError(f"tensor {name!r} of {path} {kind}: {begin} follows {reached}")
        reached = end
    if reached != size:
        raise CheckpointError(
            f"{path} has {size} bytes of data, but its tensors end at {reached}; download it again"
        )
