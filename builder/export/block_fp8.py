"""Write FP8 in blocks of 128 x 128 as DeepSeek and Qwen publish it: what `checkpoint/quantized/block_fp8.py` reads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.weights import WeightSpec
from builder.checkpoint.groups import num_groups
from builder.checkpoint.rows import BLOCK_SIZE
from builder.export.bits import e4m3, one_of_each
from builder.quant import FORMATS
from builder.targets.held import HeldWeight

METHOD = "fp8"


def blocks(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E4M3 numbers with a scale per block; reading raises UnsupportedError where blocks are smaller."""
    size_out, size_in = weight.shape
    shape = (num_groups(size_out, BLOCK_SIZE), num_groups(size_in, BLOCK_SIZE))

    def scales() -> NDArray[np.generic]:
        return one_of_each(weight.read()[1].astype(np.float32), BLOCK_SIZE, weight.name)

    return [
        e4m3(weight.name, weight.shape, lambda: weight.read()[0]),
        WeightSpec(f"{weight.name}_scale_inv", "F32", shape, scales),
    ]


def section(weights: Sequence[HeldWeight]) -> dict[str, Any]:
    """Give the quantization_config."""
    floats = [weight.name for weight in weights if weight.precision not in FORMATS]
    return {
        "quant_method": METHOD,
        "fmt": "e4m3",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK_SIZE, BLOCK_SIZE],
        "modules_to_not_convert": [name.removesuffix(".weight") for name in floats],
    }
