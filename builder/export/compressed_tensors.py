"""Write weights as compressed-tensors: `pack-quantized` for integers, `float-quantized` for FP8 without rounded rows.

The tensors are those that `checkpoint/quantized/compressed_tensors.py` lists. Scales are float32, which holds every engine's. A scheme
per kind of weight: the commonest for all linear layers, others by the names of their layers.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.weights import WeightSpec
from builder.checkpoint.groups import CHANNEL, num_groups
from builder.export.bits import lifted, num_words, words
from builder.quant import FORMATS
from builder.targets.held import HeldWeight

METHOD = "compressed-tensors"
FLOAT_QUANTIZED, PACK_QUANTIZED = "float-quantized", "pack-quantized"


def packed(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of integers of 4 or 8 bits."""
    rules, name = FORMATS[weight.precision], weight.name.removesuffix("weight")
    size_out, size_in = weight.shape
    bits, groups = rules.BITS, num_groups(size_in, weight.group)
    order = weight.rows.order

    def codes() -> NDArray[np.generic]:
        numbers = weight.read()[0]
        if order is not None:
            numbers = numbers[:, np.argsort(order())]
        if rules.HAS_ZERO_POINTS:
            return words(numbers.astype(np.uint8), bits)
        return words(lifted(numbers, bits), bits)

    def zeros() -> NDArray[np.generic]:
        return words(weight.read()[2].T.astype(np.uint8), bits).T

    width, tall = num_words(size_in, bits), num_words(size_out, bits)
    specs = [
        WeightSpec(f"{name}weight_packed", "I32", (size_out, width), codes),
        WeightSpec(f"{name}weight_scale", "F32", (size_out, groups), _scales(weight, groups)),
        WeightSpec(f"{name}weight_shape", "I64", (2,), lambda: np.array(weight.shape)),
    ]
    if rules.HAS_ZERO_POINTS:
        specs.append(WeightSpec(f"{name}weight_zero_point", "I32", (tall, groups), zeros))
    if order is not None:
        named = _group_of_each(order, weight.group)
        specs.append(WeightSpec(f"{name}weight_g_idx", "I32", (size_in,), named))
    return specs


def _group_of_each(
    order: Callable[[], NDArray[np.int64]], group: int
) -> Callable[[], NDArray[np.generic]]:
    """Name the group of each input, where groups lie in an order of their own."""
    return lambda: (np.argsort(order()) // group).astype(np.int32)


def fp8_by_outputs(weight: HeldWeight) -> list[WeightSpec]:
    """Give the tensors of E4M3 numbers with a scale per output."""
    return [
        WeightSpec(weight.name, "F8_E4M3", weight.shape, lambda: weight.read()[0].view(np.uint8)),
        WeightSpec(f"{weight.name}_scale", "F32", (weight.shape[0], 1), _scales(weight, 1)),
    ]


def section(weights: Sequence[HeldWeight]) -> dict[str, Any]:
    """Give the quantization_config."""
    kinds = {weight: (weight.precision, weight.group) for weight in weights}
    quantized = [kind for kind in kinds.values() if kind[0] in FORMATS]
    groups = {}
    for index, (kind, _) in enumerate(Counter(quantized).most_common()):
        layers = [_layer(weight) for weight in weights if kinds[weight] == kind]
        groups[f"group_{index}"] = {
            "targets": layers if index else ["Linear"],
            "weights": _scheme(*kind, is_ordered=any(_is_ordered(w) for w in weights)),
            "input_activations": None,
            "output_activations": None,
            "format": _format(kind[0]),
        }
    return {
        "quant_method": METHOD,
        "format": _format(quantized[0][0]),
        "quantization_status": "compressed",
        "config_groups": groups,
        "ignore": [_layer(weight) for weight in weights if weight.precision not in FORMATS],
        "kv_cache_scheme": None,
    }


def _format(precision: str) -> str:
    return FLOAT_QUANTIZED if "FLOAT8" in FORMATS[precision].ELEMENT else PACK_QUANTIZED


def _is_ordered(weight: HeldWeight) -> bool:
    return weight.rows.order is not None


def _scheme(precision: str, group: int, *, is_ordered: bool) -> dict[str, Any]:
    rules = FORMATS[precision]
    return {
        "num_bits": rules.BITS,
        "type": "float" if _format(precision) == FLOAT_QUANTIZED else "int",
        "symmetric": not rules.HAS_ZERO_POINTS,
        "strategy": "channel" if group == CHANNEL else "group",
        "group_size": None if group == CHANNEL else group,
        "dynamic": False,
        "actorder": "group" if is_ordered and group != CHANNEL else None,
    }


def _layer(weight: HeldWeight) -> str:
    return weight.name.removesuffix(".weight")


def _scales(weight: HeldWeight, groups: int) -> Callable[[], NDArray[np.generic]]:
    return lambda: weight.read()[1].astype(np.float32).reshape(weight.shape[0], groups)
