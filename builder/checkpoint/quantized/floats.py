"""Weights of 8 bits with a scale per output, FP8 in blocks, and NVFP4, which several programs write alike.

What differs is how scales are named and shaped.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import CHANNEL, Float32
from builder.checkpoint.quantized.modules import Module, Shape
from builder.checkpoint.quantized.numbers import codes, numbers
from builder.checkpoint.quantized_weight import FLOAT_ROWS, Parts, QuantizedWeight
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.errors import CheckpointError

NVFP4_GROUP = 16
SCALAR: tuple[Shape, ...] = ((), (1,), (1, 1))


def rows_of(scales: Tensor, size_out: int) -> Callable[[], Float32]:
    """Read one scale per output, or one for all, as `[out, 1]`."""
    return lambda: np.broadcast_to(numbers(scales).reshape(-1, 1), (size_out, 1)).astype(np.float32)


def whole_scales(
    module: Module, suffix: str, size_out: int
) -> tuple[Tensor, Callable[[], Float32]]:
    """Take the scales of a weight that has one, or one per output.

    Raises:
        CheckpointError: they are missing or of another shape.
    """
    scales = module.part(suffix, FLOATS, *SCALAR, (size_out,), (size_out, 1))
    return scales, rows_of(scales, size_out)


def by_outputs(
    module: Module, suffix: str, *, stored: str, form: str, rows: str = FLOAT_ROWS
) -> QuantizedWeight:
    """Give a weight of 8 bits with one scale, or one per output; `rows` is what shares one in what it is multiplied with.

    Raises:
        CheckpointError: a part is missing or of another kind.
    """
    weight, size_out, size_in = module.matrix("weight", (stored,))
    scales, read_scales = whole_scales(module, suffix, size_out)
    return QuantizedWeight(
        name=weight.name,
        format=form,
        group=CHANNEL,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=lambda: (numbers(weight), read_scales()),
        input_scale=input_scale(module),
        rows=rows,
    )


def fp8_by_rows(module: Module, suffix: str, rows: str) -> QuantizedWeight:
    """Give an FP8 weight with one scale, or one per output, as `by_outputs` does."""
    return by_outputs(module, suffix, stored="F8_E4M3", form="fp8", rows=rows)


def fp8_by_blocks(
    module: Module, suffix: str, block: tuple[int, int], rows: str
) -> QuantizedWeight:
    """Give an FP8 weight with one scale per block of outputs and inputs; a scale is repeated for each output.

    Raises:
        CheckpointError: a part is missing or of another kind.
    """
    weight, size_out, size_in = module.matrix("weight", ("F8_E4M3",))
    tall, wide = -(-size_out // block[0]), -(-size_in // block[1])
    scales = module.part(suffix, FLOATS, (tall, wide), (tall, 1, wide, 1))

    def load() -> Parts:
        factors = np.repeat(numbers(scales).reshape(tall, wide), block[0], axis=0)[:size_out]
        return numbers(weight), factors

    return QuantizedWeight(
        name=weight.name,
        format="fp8",
        group=block[1],
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        input_scale=input_scale(module),
        rows=rows,
    )


def nvfp4(
    module: Module,
    packed: str,
    tensor_scale: str,
    *,
    of_file: Callable[[NDArray[Any]], NDArray[Any]],
    rows: str,
) -> QuantizedWeight:
    """Give an NVFP4 weight; `of_file` turns the tensor's stored scale into one that numbers are multiplied by.

    Raises:
        CheckpointError: a part is missing or of another kind.
    """
    words, size_out, half = module.matrix(packed, ("U8",))
    size_in = 2 * half
    if size_in % NVFP4_GROUP:
        raise CheckpointError(
            f"tensor {words.name} has {size_in} inputs, not a multiple of {NVFP4_GROUP}"
        )
    scales = module.part("weight_scale", ("F8_E4M3",), (size_out, size_in // NVFP4_GROUP))
    whole = module.part(tensor_scale, ("float32",), *SCALAR)

    def load() -> Parts:
        with np.errstate(
            divide="ignore", over="ignore"
        ):  # a divisor of 0 is refused as an infinite scale
            factor = of_file(numbers(whole).reshape(()).astype(np.float64)).astype(np.float32)
        return codes(numbers(words), 4).view(ml_dtypes.float4_e2m1fn), numbers(scales), factor

    return QuantizedWeight(
        name=f"{module.name}.weight",
        format="nvfp4",
        group=NVFP4_GROUP,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        input_scale=input_scale(module),
        rows=rows,
    )


def input_scale(module: Module, suffix: str = "input_scale") -> Callable[[], Float32] | None:
    """Take the fixed scale of a layer's rows, if there is one.

    Raises:
        CheckpointError: it is no single number.
    """
    scale = module.maybe(suffix, FLOATS, *SCALAR)
    return None if scale is None else scale.read
