"""Read the weights of a portable engine back: its external data has them by name.

`w` is a float, `w.packed` one of bfloat16; `w.blocks` are unsigned bytes `[out, groups, group]`, 128 above the numbers of int8
with the scales `w.scale`. Formats of 4 bits are kept in 8 there: int4 comes back as what it is, uint4, whose zero points are taken
off, as int8.
"""

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np

from builder.artifact.manifest import EngineRecord
from builder.artifact.store import Artifact
from builder.checkpoint.quantized.numbers import numbers
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Tensor
from builder.graph.passes.lower_quantized_linear import OFFSET
from builder.quant import int4, int8
from builder.quant.groups import Parts
from builder.quant.plan import BFLOAT16, FLOAT32
from builder.targets.held import HeldWeight, Shape, weights_of

TYPES: dict[str, Any] = {int8.NAME: np.int8, int4.NAME: ml_dtypes.int4}


def held_weights(
    artifact: Artifact, engine: EngineRecord, shapes: Mapping[str, Shape]
) -> list[HeldWeight]:
    """List the weights that `shapes` names.

    Raises:
        ArtifactError: the engine has no file of weights.
    """
    stored = read_safetensors(artifact.path(weights_of(engine)))
    found = (_held(name, shape, stored, engine.fallbacks) for name, shape in shapes.items())
    return [weight for weight in found if weight is not None]


def _held(
    name: str, shape: Shape, stored: Mapping[str, Tensor], fallbacks: Mapping[str, str]
) -> HeldWeight | None:
    if (plain := stored.get(name)) is not None:
        return HeldWeight(name, FLOAT32, 0, shape, lambda: (plain.read(),))
    narrow = stored.get(f"{name}.packed")
    if narrow is not None and narrow.stored == BFLOAT16:
        return HeldWeight(
            name, BFLOAT16, 0, shape, lambda: (narrow.read().astype(ml_dtypes.bfloat16),)
        )
    blocks, scales = stored.get(f"{name}.blocks"), stored.get(f"{name}.scale")
    if blocks is None or scales is None:
        return None
    # Its scales may be negative, and a change of signs is exact, but ONNX Runtime's kernel then rounds otherwise.
    precision = int4.NAME if fallbacks.get(name) == int4.NAME else int8.NAME
    read = _signed(blocks, scales, shape[1], TYPES[precision])
    return HeldWeight(name, precision, blocks.shape[2], shape, read)


def _signed(blocks: Tensor, scales: Tensor, size_in: int, dtype: Any) -> Callable[[], Parts]:
    def read() -> Parts:
        lifted = numbers(blocks).reshape(blocks.shape[0], -1)[:, :size_in]
        return (lifted ^ np.uint8(OFFSET)).view(np.int8).astype(dtype), scales.read()

    return read
