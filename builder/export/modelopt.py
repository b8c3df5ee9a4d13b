"""Write weights as NVIDIA's unified checkpoints have them, with a section of config.json and a file of their own.

The tensors are those that `checkpoint/quantized/modelopt.py` lists. One algorithm for all layers that are quantized; the others are
excluded by name.
"""

from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.weights import WeightSpec
from builder.checkpoint.quantized.kv_cache import ALGORITHMS, NUMBERS
from builder.checkpoint.rows import FIXED
from builder.checkpoint.weights import HEAD
from builder.errors import UnsupportedError
from builder.export.bits import e4m3, nibbles, one_of_each
from builder.export.kv_scales import FIELD
from builder.quant import FORMATS
from builder.quant.nvfp4 import GROUP
from builder.targets.held import HeldWeight

METHOD = "modelopt"
FILE_NAME = "hf_quant_config.json"


def fp8_by_outputs(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E4M3 numbers with a scale per output."""
    return [e4m3(weight.name, weight.shape, lambda: weight.read()[0]), _by_outputs(weight)]


def fp8(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E4M3 numbers with one scale, and that of their rows; reading raises UnsupportedError for several."""

    def scale() -> NDArray[np.generic]:
        scales = weight.read()[1].astype(np.float32)
        return one_of_each(scales, len(scales), weight.name).reshape(())

    return [
        e4m3(weight.name, weight.shape, lambda: weight.read()[0]),
        WeightSpec(f"{weight.name}_scale", "F32", (), scale),
        *_rows(weight),
    ]


def int8_by_outputs(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of int8 numbers with a scale per output, and what is fixed of their rows."""
    numbers = WeightSpec(weight.name, "I8", weight.shape, lambda: weight.read()[0])
    return [numbers, _by_outputs(weight), *_rows(weight)]


def awq(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of int4 numbers, two outputs in a byte, with a scale per group, and the factors of their rows.

    Raises:
        UnsupportedError: outputs are no pairs, or a row is no whole number of groups.
    """
    size_out, size_in = weight.shape
    if size_out % 2 or size_in % weight.group:
        raise UnsupportedError(
            f"{weight.name} is {size_out} x {size_in} in groups of {weight.group}; the AWQ layout of modelopt needs an even "
            "number of outputs and whole groups"
        )

    def codes() -> NDArray[np.generic]:
        return nibbles(weight.read()[0].astype(np.int8).view(np.uint8).T & np.uint8(15)).T

    shape = (size_out, size_in // weight.group)
    return [
        WeightSpec(weight.name, "U8", (size_out // 2, size_in), codes),
        WeightSpec(
            f"{weight.name}_scale", "F32", shape, lambda: weight.read()[1].astype(np.float32)
        ),
        *_rows(weight),
    ]


def nvfp4(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E2M1 numbers with an E4M3 scale per 16 inputs and one of the tensor, and that of their rows.

    Raises:
        UnsupportedError: a row is no whole number of groups.
    """
    size_out, size_in = weight.shape
    if size_in % GROUP:
        raise UnsupportedError(
            f"{weight.name} has {size_in} inputs, not a multiple of {GROUP}, which the NVFP4 layout needs; export fp8-dynamic instead"
        )

    def codes() -> NDArray[np.generic]:
        return nibbles(weight.read()[0].view(np.uint8) & np.uint8(15))

    return [
        WeightSpec(weight.name, "U8", (size_out, size_in // 2), codes),
        e4m3(f"{weight.name}_scale", (size_out, size_in // GROUP), lambda: weight.read()[1]),
        WeightSpec(f"{weight.name}_scale_2", "F32", (), lambda: weight.read()[2].reshape(())),
        *_rows(weight),
    ]


def section(
    algorithm: str, group: int | None = None
) -> Callable[[Sequence[HeldWeight]], dict[str, Any]]:
    """Give what makes the quantization_config of an algorithm."""

    def make(weights: Sequence[HeldWeight]) -> dict[str, Any]:
        floats = [weight.name for weight in weights if weight.precision not in FORMATS]
        if all(weight.name != HEAD for weight in weights):  # one with the table, which is float
            floats.append(HEAD)
        sizes = {} if group is None else {"group_size": group}
        return {
            "quant_method": METHOD,
            "quant_algo": algorithm,
            **sizes,
            "ignore": [name.removesuffix(".weight") for name in floats],
            "producer": _producer(),
        }

    return make


def awq_section(weights: Sequence[HeldWeight]) -> dict[str, Any]:
    """Give the quantization_config of AWQ, whose groups its weights have.

    Raises:
        UnsupportedError: they have different ones.
    """
    groups = sorted({weight.group for weight in weights if weight.precision in FORMATS})
    if len(groups) > 1:
        raise UnsupportedError(
            f"the artifact holds int4 in groups of {' and '.join(map(str, groups))}, of which the AWQ layout of modelopt has one"
        )
    return section("W4A16_AWQ", groups[0])(weights)


def own_file(section: dict[str, Any]) -> dict[str, Any]:
    """Give the content of hf_quant_config.json, which says the same as a section of config.json."""
    same: dict[str, Any] = {
        name: section[name] for name in ("quant_algo", "group_size") if name in section
    }
    inner = {**same, "kv_cache_quant_algo": _kv(section), "exclude_modules": section["ignore"]}
    return {"producer": section["producer"], "quantization": inner}


def _kv(section: dict[str, Any]) -> str | None:
    """Name what keys and values are, as modelopt does."""
    if FIELD not in section:
        return None
    precision = NUMBERS[section[FIELD]["type"]]
    (name,) = (name for name, own in ALGORITHMS.items() if own == precision)
    return name.upper()


def _producer() -> dict[str, str]:
    """Name the layout as its readers ask for it, and who wrote it."""
    return {"name": METHOD, "version": f"forerun {version('forerun')}"}


def _by_outputs(weight: HeldWeight) -> WeightSpec:
    def scales() -> NDArray[np.generic]:
        return weight.read()[1].astype(np.float32).reshape(-1)

    return WeightSpec(f"{weight.name}_scale", "F32", weight.shape[:1], scales)


def _rows(weight: HeldWeight) -> Iterator[WeightSpec]:
    """Give the tensors of what is fixed of a weight's rows."""
    layer, rows = weight.name.removesuffix(".weight"), weight.rows
    if FORMATS[weight.precision].ROWS in FIXED:
        assert rows.fixed is not None, "no engine is compiled without it"
        yield WeightSpec(f"{layer}.input_scale", "F32", (), rows.fixed)
    if rows.factors is not None:
        yield WeightSpec(f"{layer}.pre_quant_scale", "F32", weight.shape[1:], rows.factors)
