"""AWQ, as AutoAWQ writes it for its GEMM kernels (`quant_method` awq): 4 bits with zero points.

`qweight` int32 `[in, out / 8]` and `qzeros` int32 `[groups, out / 8]` hold eight outputs in a word: its nibbles, lowest first, are
those of outputs 0, 2, 4, 6, 1, 3, 5, 7; `scales` `[groups, out]`. A weight is `(q - zero) * scale`.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from builder.checkpoint.groups import num_groups
from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.quantized.modules import (
    Found,
    Module,
    check_lists,
    names_run,
    quantized_modules,
)
from builder.checkpoint.quantized.numbers import Codes, codes, numbers
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.checkpoint.weights import HEAD

PARTS = ("qweight", "qzeros", "scales")
NIBBLES = (0, 4, 1, 5, 2, 6, 3, 7)
"""The nibble that holds each of eight outputs."""
HARMLESS = (
    "backend", "do_fuse", "exllama_config", "fuse_max_seq_len", "modules_to_fuse",
)  # fmt: skip


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    fields.choice("version", ("gemm",), default="gemm")
    fields.choice("bits", (4,), "w_bit")
    fields.choice("zero_point", (True,), default=True)
    group = fields.group("group_size", "q_group_size")
    excluded = fields.names("modules_to_not_convert")
    fields.finish(HARMLESS)
    modules = quantized_modules(tensors, PARTS)
    check_lists(
        tensors,
        modules,
        is_excluded=lambda name: names_run(excluded, name),
        is_target=lambda name: f"{name}.weight" != HEAD,
    )
    weights = [_weight(module, group) for module in modules]
    return Found(modules, weights)


def _weight(module: Module, group: int) -> QuantizedWeight:
    words, size_in, width = module.matrix("qweight", ("I32",))
    size_out, count = 8 * width, num_groups(size_in, group)
    scales = module.part("scales", FLOATS, (count, size_out))
    zeros = module.part("qzeros", ("I32",), (count, width))

    def load() -> Parts:
        lifted, points = (_by_outputs(tensor).astype(ml_dtypes.uint4) for tensor in (words, zeros))
        return lifted, np.ascontiguousarray(numbers(scales).T), points

    return QuantizedWeight(
        name=f"{module.name}.weight",
        format="uint4",
        group=group,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
    )


def _by_outputs(tensor: Tensor) -> Codes:
    """Unpack `[n, out / 8]` words to `[out, n]`."""
    nibbles = codes(numbers(tensor), 4).reshape(tensor.shape[0], -1, 8)
    return np.ascontiguousarray(nibbles[:, :, NIBBLES].reshape(tensor.shape[0], -1).T)
