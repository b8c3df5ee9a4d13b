"""GGUF files as checkpoints: names and row order of Hugging Face, blocks dequantized when read, or kept where a format has them.

llama.cpp's converter reorders the rows of query and key projections so that rotary pairs lie side by side;
reading puts them back, because the graph rotates halves.
"""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from builder.checkpoint.files import Bytes
from builder.checkpoint.gguf_tokenizer import read_gguf_tokenizer
from builder.checkpoint.provenance import Source, note_files
from builder.checkpoint.sources.gguf_archs import GgufArch
from builder.checkpoint.sources.gguf_blocks import FORMATS, kept_type, kept_weight
from builder.checkpoint.sources.gguf_config import ROPE_FACTORS, find_arch, read_config
from builder.checkpoint.sources.gguf_file import GgufFile, StoredTensor, read_gguf
from builder.checkpoint.tensors import Checkpoint, Float32, Tensor, widen
from builder.errors import CheckpointError, UnsupportedError

PLAIN = {
    gguf.GGMLQuantizationType.F32: "float32",
    gguf.GGMLQuantizationType.F16: "float16",
    gguf.GGMLQuantizationType.BF16: "bfloat16",
}
LAYER_NAME = re.compile(r"blk\.(0|[1-9][0-9]{0,5})\.(\w+)\.(weight|bias)")
OTHER_NAME = re.compile(r"(\w+)\.(weight|bias)")


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file; only its header is read.

    Raises:
        CheckpointError: the file is absent, damaged, or contradicts itself.
        UnsupportedError: its architecture, a tensor, a block type or a setting is not implemented.
    """
    file = read_gguf(path)
    config = read_config(file)
    found = _read_tensors(file, config)
    tokenizer = read_gguf_tokenizer(file.metadata)
    source = Source("gguf", path.name, note_files([path]))
    tensors = {name: _tensor(name, stored, heads) for name, (stored, heads) in found.items()}
    kind = kept_type({name: stored for name, (stored, _) in found.items()})
    if kind is None:
        return Checkpoint(config, tensors, tokenizer, source)
    kept = {
        name: kept_weight(name, stored, _reading(stored, heads))
        for name, (stored, heads) in found.items()
        if stored.type in FORMATS and len(stored.shape) == 2
    }
    return Checkpoint(config, tensors, tokenizer, source, kept, f"GGUF {kind.name}")


def _read_tensors(
    file: GgufFile, config: Mapping[str, Any]
) -> dict[str, tuple[StoredTensor, int | None]]:
    """Give each tensor under its Hugging Face name, and the number of heads if its rows are interleaved."""
    _, arch = find_arch(file.metadata)
    _refuse_block_types({stored.type for stored in file.tensors.values()})
    tensors: dict[str, tuple[StoredTensor, int | None]] = {}
    unknown: list[str] = []
    for stored in file.tensors.values():
        if stored.name == ROPE_FACTORS:
            continue  # part of the config
        name, heads_field = _translate(stored.name, arch)
        if name is None:
            unknown.append(stored.name)
            continue
        num_heads = None if heads_field is None else config[heads_field]
        tensors[name] = stored, num_heads
    if unknown:
        raise UnsupportedError(
            f"the GGUF file has tensors that are not known for its architecture: {', '.join(unknown[:5])}"
        )
    return tensors


def _refuse_block_types(types: set[gguf.GGMLQuantizationType]) -> None:
    """Refuse types that can't be dequantized, before any work is done."""
    for kind in sorted(types - PLAIN.keys()):
        _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        try:
            gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except NotImplementedError as error:
            raise UnsupportedError(
                f"GGUF block type {kind.name} can't be dequantized; use a file of another type, such as Q8_0"
            ) from error


def _translate(name: str, arch: GgufArch) -> tuple[str | None, str | None]:
    """Give the Hugging Face name, and the field that counts the heads if rows are interleaved."""
    if (match := OTHER_NAME.fullmatch(name)) is not None:
        base = arch.tensors.get(match[1])
        return (None if base is None else f"{base}.{match[2]}"), None
    if (match := LAYER_NAME.fullmatch(name)) is not None and match[2] in arch.layer_tensors:
        theirs = f"model.layers.{match[1]}.{arch.layer_tensors[match[2]]}.{match[3]}"
        return theirs, arch.interleaved.get(match[2])
    return None, None


def _tensor(name: str, stored: StoredTensor, num_heads: int | None) -> Tensor:
    """Make a lazy tensor; `num_heads` says that its rows are interleaved."""
    shape, kind = stored.shape, stored.type
    if num_heads is not None:
        _check_interleaved(stored, num_heads)

    read = _reading(stored, num_heads)

    def load() -> Float32:
        raw = read()
        if kind in PLAIN:
            return widen(raw.reshape(-1), name, PLAIN[kind]).reshape(shape)
        with np.errstate(
            all="ignore"
        ):  # hostile scales may overflow; Tensor.read refuses the result
            return np.ascontiguousarray(gguf.dequantize(raw, kind), np.float32).reshape(shape)

    return Tensor(name, shape, PLAIN.get(kind, kind.name), len(stored.part), load)


def _reading(stored: StoredTensor, num_heads: int | None) -> Callable[[], Bytes]:
    """Read rows in the order of Hugging Face."""
    return lambda: stored.raw if num_heads is None else _halves(stored, num_heads)


def _check_interleaved(stored: StoredTensor, num_heads: int) -> None:
    rows = stored.shape[0]
    if type(num_heads) is not int or num_heads < 1 or rows % (2 * num_heads):
        raise CheckpointError(
            f"tensor {stored.name} has {rows} rows, which don't make {num_heads} heads"
        )
    if len(stored.shape) == 1 and stored.type not in PLAIN:
        raise UnsupportedError(f"tensor {stored.name} is a bias in blocks of {stored.type.name}")


def _halves(stored: StoredTensor, num_heads: int) -> Bytes:
    """Put the rows of each head from pairs (0, 1), (2, 3).. back into two halves.

    Blocks run along rows, so that whole rows can be moved before they are dequantized.
    """
    rows = stored.shape[0]
    pairs = stored.raw.reshape(num_heads, rows // num_heads // 2, 2, -1)
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(
        rows if len(stored.shape) > 1 else 1, -1
    )
