"""GGUF blocks that are formats of ours: Q8_0 is int8 and Q4_0 is int4, both with a scale per 32 inputs.

A block of Q8_0 is a float16 scale and 32 int8 numbers; one of Q4_0 a float16 scale and 16 bytes, which hold the first 16 numbers in
their lower halves and the last 16 in their upper halves, each plus 8 (ggml's block layouts). Other types have minima that are no
whole number of steps, or groups that we lack, and are dequantized.
"""

from collections.abc import Callable, Mapping

import gguf
import ml_dtypes
import numpy as np

from builder.checkpoint.files import Bytes
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.sources.gguf_file import StoredTensor

GROUP = 32
FORMATS = {
    gguf.GGMLQuantizationType.Q8_0: "int8",
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
        load=lambda: _parts(read(), FORMATS[stored.type]),
    )


def _parts(rows: Bytes, name: str) -> Parts:
    """Give numbers `[out, in]` and float32 scales `[out, groups]`; numbers behind a scale of 0 become 0, as which they count."""
    blocks = rows.reshape(len(rows), -1, 2 + GROUP * (8 if name == "int8" else 4) // 8)
    scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2")[:, :, 0].astype(np.float32)
    stored = np.ascontiguousarray(blocks[:, :, 2:])
    if name == "int8":
        numbers = stored.view(np.int8)
    else:
        numbers = np.concatenate([stored & 15, stored >> 4], axis=2).view(np.int8) - np.int8(8)
    numbers = np.where(scales[:, :, None] == 0, np.int8(0), numbers).reshape(len(rows), -1)
    return (numbers if name == "int8" else numbers.astype(ml_dtypes.int4)), scales
