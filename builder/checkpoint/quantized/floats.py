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
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.rows import FIXED, RowScales
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.errors import CheckpointError
from plugins.quantize import spec

NVFP4_GROUP = spec.GROUP_E2M1
LEAST_SCALE, LARGEST_SCALE = spec.FIXED_SCALES
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
    module: Module, suffix: str, *, stored: str, form: str, rows: str
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
        rows=rows,
        row_scales=row_scales(module, rows, size_in),
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
    single = (
        SCALAR if tall == wide == 1 else ()
    )  # as modelopt stores the scale of a weight of one block
    scales = module.part(suffix, FLOATS, (tall, wide), (tall, 1, wide, 1), *single)

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
        rows=rows,
        row_scales=row_scales(module, rows, size_in),
    )


def nvfp4(
    module: Module,
    packed: str,
    tensor_scale: str,
    *,
    of_file: Callable[[NDArray[Any]], NDArray[Any]],
    rows: str,
    row_scale: str = "input_scale",
) -> QuantizedWeight:
    """Give an NVFP4 weight; `of_file` turns the stored scales of tensors, those of rows too, into factors.

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
        rows=rows,
        row_scales=row_scales(module, rows, size_in, row_scale, of_file),
    )


def row_scales(
    module: Module,
    rows: str,
    size_in: int,
    suffix: str = "input_scale",
    of_file: Callable[[Float32], Float32] = lambda scale: scale,
) -> RowScales:
    """Take what is fixed of a layer's rows: one scale where their kind needs it, and `pre_quant_scale` if it is there.

    `of_file` turns the stored scale, a tensor of the name `suffix`, into one that rows are divided by.

    Raises:
        CheckpointError: a scale is missing, not asked for, or of another shape.
    """
    fixed = module.maybe(suffix, FLOATS, *SCALAR)
    factors = module.maybe("pre_quant_scale", FLOATS, (size_in,))
    if rows in FIXED and fixed is None:
        raise CheckpointError(
            f"{module.name} is multiplied with rows of a fixed scale, but tensor {module.name}.{suffix} is missing"
        )
    if rows not in FIXED and fixed is not None:
        raise CheckpointError(
            f"tensor {fixed.name} is there, but by the config rows have no fixed scale: the two contradict each other"
        )
    return RowScales(
        None if fixed is None else _positive(fixed, of_file),
        None if factors is None else _factors(factors),
    )


def _factors(tensor: Tensor) -> Callable[[], Float32]:
    """Read what rows are multiplied with, `[in]`."""

    def read() -> Float32:
        factors = tensor.read()
        wrong = ~((factors >= LEAST_SCALE) & (factors <= LARGEST_SCALE))
        if wrong.any():
            place = int(np.argmax(wrong))
            raise CheckpointError(
                f"tensor {tensor.name} is {factors[place]:g} for input {place}; rows can't be multiplied with that: "
                "download the checkpoint again"
            )
        return factors

    return read


def _positive(tensor: Tensor, of_file: Callable[[Float32], Float32]) -> Callable[[], Float32]:
    """Read the scale of all rows `[]`."""

    def read() -> Float32:
        stored = tensor.read().reshape(())
        with np.errstate(divide="ignore", over="ignore"):
            scale = of_file(stored).astype(np.float32)
        if not LEAST_SCALE <= scale <= LARGEST_SCALE:
            raise CheckpointError(
                f"tensor {tensor.name} is {stored:g}; rows can't be divided by that: download the checkpoint again"
            )
        return scale

    return read
