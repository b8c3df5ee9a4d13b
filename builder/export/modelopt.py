"""Write weights as NVIDIA's unified checkpoints have them, with a section of config.json and a file of their own.

The tensors are those that `checkpoint/quantized/modelopt.py` lists. One algorithm for all layers that are quantized; the others are
excluded by name.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.weights import WeightSpec
from builder.errors import UnsupportedError
from builder.export.bits import nibbles
from builder.quant import FORMATS
from builder.targets.held import HeldWeight

METHOD = "modelopt"
FILE_NAME = "hf_quant_config.json"
GROUP = 16


def fp8_by_outputs(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E4M3 numbers with a scale per output."""
    return [
        _e4m3(weight.name, weight.shape, lambda: weight.read()[0]),
        WeightSpec(
            f"{weight.name}_scale",
            "F32",
            weight.shape[:1],
            lambda: weight.read()[1].astype(np.float32).reshape(-1),
        ),
    ]


def nvfp4(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E2M1 numbers with an E4M3 scale per 16 inputs and one of the tensor.

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
        _e4m3(f"{weight.name}_scale", (size_out, size_in // GROUP), lambda: weight.read()[1]),
        WeightSpec(f"{weight.name}_scale_2", "F32", (), lambda: weight.read()[2].reshape(())),
    ]


def section(
    algorithm: str, group: int | None = None
) -> Callable[[Sequence[HeldWeight]], dict[str, Any]]:
    """Give what makes the quantization_config of an algorithm."""

    def make(weights: Sequence[HeldWeight]) -> dict[str, Any]:
        floats = [weight.name for weight in weights if weight.precision not in FORMATS]
        sizes = {} if group is None else {"group_size": group}
        return {
            "quant_method": METHOD,
            "quant_algo": algorithm,
            **sizes,
            "ignore": [name.removesuffix(".weight") for name in floats],
            "producer": _producer(),
        }

    return make


def own_file(section: dict[str, Any]) -> dict[str, Any]:
    """Give the content of hf_quant_config.json, which says the same as a section of config.json."""
    same: dict[str, Any] = {
        name: section[name] for name in ("quant_algo", "group_size") if name in section
    }
    inner = {**same, "kv_cache_quant_algo": None, "exclude_modules": section["ignore"]}
    return {"producer": section["producer"], "quantization": inner}


def _producer() -> dict[str, str]:
    """Name the layout as its readers ask for it, and who wrote it."""
    return {"name": METHOD, "version": f"forerun {version('forerun')}"}


def _e4m3(name: str, shape: tuple[int, ...], read: Callable[[], NDArray[np.generic]]) -> WeightSpec:
    return WeightSpec(name, "F8_E4M3", shape, lambda: read().view(np.uint8).reshape(shape))
