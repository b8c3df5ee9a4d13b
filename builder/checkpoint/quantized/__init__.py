"""Checkpoints that somebody else quantized, in their bits: one file per scheme, found by `quant_method` of the config.

To add one, write a file with `read` and a line in SCHEMES.
"""

from collections.abc import Callable, Mapping
from typing import Any

from builder.checkpoint.kv_scales import KVScales
from builder.checkpoint.quantized import awq, block_fp8, compressed_tensors, gptq, modelopt
from builder.checkpoint.quantized.fields import Fields, shown
from builder.checkpoint.quantized.kv_cache import is_kv_scale, read_kv_scales
from builder.checkpoint.quantized.modules import Found
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.tensors import Tensor
from builder.errors import CheckpointError, UnsupportedError, unknown_name

METHOD = "quant_method"
SCHEMES: dict[str, Callable[[Fields, Mapping[str, Tensor]], Found]] = {
    "awq": awq.read,
    "compressed-tensors": compressed_tensors.read,
    "fp8": block_fp8.read,
    "gptq": gptq.read,
    "modelopt": modelopt.read,
}
"""Readers by the name that a config gives their method."""


def read_quantized(
    section: Any, where: str, tensors: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], dict[str, QuantizedWeight], KVScales | None]:
    """Put each quantized weight in the place of its parts; give the weights also as what they are, and the scales of keys and values.

    `section` is the quantization_config, `where` names it in errors.

    Raises:
        CheckpointError: the config is no object, or contradicts the tensors.
        UnsupportedError: the method, or something that it asks for, is not implemented.
    """
    if not isinstance(section, dict):
        raise CheckpointError(f"{where} is {shown(section)}, not an object")
    method = section.get(METHOD)
    if not isinstance(method, str):
        raise CheckpointError(f"{where} has no {METHOD} that says what it is")
    if method not in SCHEMES:
        raise UnsupportedError(f"{where}: {unknown_name('quantization method', method, SCHEMES)}")
    fields = Fields(section, where)
    fields.take(METHOD)
    modules, weights, kv_precision = SCHEMES[method](fields, tensors)
    kv = read_kv_scales(tensors, kv_precision)
    if not weights:
        raise CheckpointError(
            f"{where} says {method}, but no tensor is quantized; remove it if that is meant"
        )
    taken = {tensor.name for module in modules for tensor in module.taken}
    kept = {
        name: tensor
        for name, tensor in tensors.items()
        if name not in taken and not is_kv_scale(name)
    }
    for weight in weights:
        if weight.name in kept:
            raise CheckpointError(
                f"tensor {weight.name} is there both quantized and as {kept[weight.name].stored}"
            )
        kept[weight.name] = _as_float(weight)
    return kept, {weight.name: weight for weight in weights}, kv


def _as_float(weight: QuantizedWeight) -> Tensor:
    return Tensor(weight.name, weight.shape, weight.format, weight.num_bytes, weight.dequantize)
