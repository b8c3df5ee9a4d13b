"""GGUF blocks whose numbers a format of ours holds: Q8_0 and Q5_0 are int8 and Q4_0 is int4, all with a scale per 32 inputs.

A block of Q8_0 is a float16 scale and 32 int8 numbers; one of Q4_0 a float16 scale and 16 bytes, which hold the first 16 numbers in
their lower halves and the last 16 in their upper halves, each plus 8; one of Q5_0 has 4 bytes between them, with the fifth bits of the
32 numbers, each plus 16 (ggml's block layouts). Other types have minima that are no whole number of steps (Q4_1, Q5_1, Q4_K, Q5_K) or
a scale per 16 inputs (Q6_K), which no format has: they are dequantized.
"""

from collections.abc import Callable, Mapping

import gguf
import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.files import Bytes
from builder.checkpoint.groups import spread
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.sources.gguf_file import StoredTensor

GROUP = 32
FORMATS = {
    gguf.GGMLQuantizationType.Q8_0: "int8",
    gguf.GGMLQuantizationType.Q5_0: "int8",
    gguf.GGMLQuantizationType.Q4_0: "int4",
}
LAYER = "model.layers."


def kept_type(tensors: Mapping[str, StoredTensor]) -> gguf.GGMLQuantizationType | None:
    """Give the type that the matrices of all layers have, if that is a format of ours; names are Hugging Face's."""
    kinds = {
        stored.type
        for name, stored in tensors.items()
        if name.startswith(LAYER) and len(stored.shape) == 2
    }
    return next(iter(kinds)) if len(kinds) == 1 and kinds <= FORMATS.keys() else None


def kept_weight(name: str, stored: StoredTensor, read: Callable[[], Bytes]) -> QuantizedWeight:
    """Make the weight of a matrix whose type is one of FORMATS; `read` gives its rows `[out, bytes]` in our order."""
    size_out, size_in = stored.shape
    return QuantizedWeight(
        name=name,
        format=FORMATS[stored.type],
        group=GROUP,
        shape=(size_out, size_in),
        scales_stored="float16",
        num_bytes=len(stored.part),
        load=lambda: _parts(read(), stored.type),
    )


def _parts(rows: Bytes, kind: gguf.GGMLQuantizationType) -> Parts:
    """Give numbers `[out, in]` and float32 scales `[out, groups]`; numbers behind a scale of 0 become 0, as which they count."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    blocks = rows.reshape(len(rows), -1, block_bytes)
    scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0].astype(np.float32)
    numbers = _numbers(np.ascontiguousarray(blocks[:, :, 2:]), kind)
    numbers = np.where(scales[:, :, None] == 0, np.int8(0), numbers).reshape(len(rows), -1)
    if (
        kind == gguf.GGMLQuantizationType.Q5_0
    ):  # the sign of a scale, which int8 has not, goes into its numbers
        numbers *= spread(np.where(scales < 0, np.int8(-1), np.int8(1)), GROUP, numbers.shape[1])
        scales = np.abs(scales)
    return (numbers.astype(ml_dtypes.int4) if FORMATS[kind] == "int4" else numbers), scales


def _numbers(stored: Bytes, kind: gguf.GGMLQuantizationType) -> NDArray[np.int8]:
    """Give the numbers of blocks `[out, groups, bytes]` without their scales: `[out, groups, 32]`."""
    if kind == gguf.GGMLQuantizationType.Q8_0:
        numbers: NDArray[np.int8] = stored.view(np.int8)
        return numbers
    halves = stored[:, :, -GROUP // 2 :]
    codes = np.concatenate([halves & 15, halves >> 4], axis=2)
    middle = np.int8(8)
    if kind == gguf.GGMLQuantizationType.Q5_0:
        fifth = np.unpackbits(stored[:, :, :4], axis=2, bitorder="little")
        codes, middle = codes | (fifth << np.uint8(4)), np.int8(16)
    lowered: NDArray[np.int8] = codes.view(np.int8) - middle
    return lowered
