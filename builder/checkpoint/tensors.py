"""A checkpoint as the builder sees it, whatever file format it came in.

Names are those of Hugging Face. Tensors are lazy: opening reads headers only, and `read` touches the
bytes of one tensor.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.files import Bytes
from builder.checkpoint.kv_scales import KVScales
from builder.checkpoint.provenance import Source
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.tokenizer_files import TokenizerFiles
from builder.errors import CheckpointError, UnsupportedError

Float32 = NDArray[np.float32]

FLOATS = ("float32", "float16", "bfloat16")


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """One weight of a checkpoint, not yet read."""

    name: str
    shape: tuple[int, ...]
    stored: str
    """How the file holds it: `float32`, `float16`, `bfloat16`, a GGUF block type such as `Q4_1`, or another
    number type that `read` refuses."""
    nbytes_stored: int
    load: Callable[[], Float32]
    """Read it without checks; the source's own."""
    raw: Callable[[], Bytes] | None = None
    """Read its bytes as they lie in the file, where they are plain numbers."""

    def read(self) -> Float32:
        """Read it as float32 `[*shape]`, C-contiguous, exactly as stored; blocks are dequantized.

        The array may be read-only.

        Raises:
            CheckpointError: it holds NaN or infinity, or its file became shorter.
            UnsupportedError: numbers of its type can't be read.
        """
        values = self.load()
        with np.errstate(all="ignore"):
            # A sum is five times cheaper than looking at each number, and settles it nearly always.
            if not np.isfinite(values.sum()) and not np.isfinite(values).all():
                raise CheckpointError(f"tensor {self.name} holds NaN or infinite numbers")
        return values


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as published: weights, config and tokenizer. `WeightReader` hands out the weights."""

    config: dict[str, Any]
    """The content of a Hugging Face config.json, not yet judged, less what `quantized` tells already."""
    tensors: Mapping[str, Tensor]
    """Every tensor of the files, by name; one weight in place of the parts that a quantized one is made of."""
    tokenizer: TokenizerFiles
    source: Source
    quantized: Mapping[str, QuantizedWeight] = field(default_factory=dict)
    """The weights that the files hold quantized, by name; `tensors` has them too, dequantized when they are read."""
    method: str | None = None
    """What quantized them, by the name that the config gives it, such as `gptq`."""
    kv: KVScales | None = None
    """Of a checkpoint that says how keys and values are quantized: their scales."""


def widen(raw: Bytes, tensor_name: str, stored: str) -> Float32:
    """Turn the stored bytes of plain numbers into float32, flat; exact for all three float types.

    Raises:
        UnsupportedError: `stored` is another type of number.
    """
    if stored == "float32":
        return np.require(raw.view("<f4"), np.float32, ["C", "A"])
    if stored == "float16":
        return raw.view("<f2").astype(np.float32)
    if stored == "bfloat16":
        bits = raw.view("<u2").astype(np.uint32)
        bits <<= 16  # bfloat16 is the upper half of float32
        return bits.view(np.float32)
    raise UnsupportedError(
        f"tensor {tensor_name} is stored as {stored}; weights must be {', '.join(FLOATS)} or GGUF blocks"
    )
