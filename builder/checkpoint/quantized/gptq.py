"""GPTQ, as AutoGPTQ and GPTQModel write it (`quant_method` gptq): 4 or 8 bits, symmetric or with zero points.

`qweight` int32 `[in / n, out]` holds n numbers of consecutive inputs in a word, lowest bits first; `scales` `[groups, out]`;
`qzeros` int32 `[groups, out / n]` holds zero points, less one in format v1 (`gptq`), as they are in `gptq_v2`; `g_idx` `[in]`
names the group of each input, whose rows are put in the order of groups where these are no runs. A weight is `(q - zero) * scale`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import num_groups
from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.quantized.modules import (
    Found,
    Module,
    check_lists,
    names_run,
    quantized_modules,
)
from builder.checkpoint.quantized.numbers import Codes, codes, numbers, signed
from builder.checkpoint.quantized.order import grouping
from builder.checkpoint.quantized_weight import Parts, QuantizedWeight
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.checkpoint.weights import HEAD
from builder.errors import CheckpointError, UnsupportedError

PARTS = ("qweight", "qzeros", "scales", "g_idx")
HARMLESS = (
    "act_group_aware", "backend", "batch_size", "block_name_to_quantize", "cache_block_outputs", "damp_auto_increment",
    "damp_percent", "dataset", "desc_act", "disable_exllama", "exllama_config", "is_marlin_format", "max_input_length",
    "meta", "method", "model_file_base_name", "model_name_or_path", "model_seqlen", "module_name_preceding_first_block",
    "mse", "pad_token_id", "quantizer", "static_groups", "tokenizer", "true_sequential", "use_cuda_fp16", "use_exllama",
)  # fmt: skip
"""Fields about how it was made, or which kernels of other programs to use; what they led to is in the tensors."""


@dataclass(frozen=True, slots=True)
class _Form:
    bits: int
    group: int
    symmetric: bool
    adds_one: bool
    """Whether stored zero points are less one."""

    @property
    def together(self) -> int:
        """Numbers in a word."""
        return 32 // self.bits

    @property
    def middle(self) -> int:
        """Zero point of symmetric numbers."""
        return 1 << (self.bits - 1)


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    version = fields.choice("checkpoint_format", ("gptq", "gptq_v2"), "format", default="gptq")
    form = _Form(
        bits=fields.choice("bits", (4, 8)),
        group=fields.group("group_size"),
        symmetric=fields.flag("sym", default=True),
        adds_one=version == "gptq",
    )
    if form.bits == 8 and not form.symmetric:
        raise fields.unsupported("sym with 8 bits", value=False, allowed=(True,))
    fields.choice("pack_dtype", ("int32",), default="int32")
    fields.require_empty("adapter", "dynamic")
    has_head, inside = fields.flag("lm_head", default=False), _inside(fields)
    fields.finish(HARMLESS)
    modules = quantized_modules(tensors, PARTS)

    def is_target(name: str) -> bool:
        if f"{name}.weight" == HEAD:
            return has_head
        return inside is None or names_run(inside, name)

    check_lists(tensors, modules, is_excluded=lambda _: False, is_target=is_target)
    weights = [_weight(module, form) for module in modules]
    return Found(modules, weights)


def _inside(fields: Fields) -> list[str] | None:
    """Give the layers of a block that are quantized, if not all are."""
    value = fields.take("modules_in_block_to_quantize")
    if value is None:
        return None
    lists = value if isinstance(value, list) else [value]
    found = [name for one in lists for name in (one if isinstance(one, list) else [one])]
    names = [name for name in found if isinstance(name, str) and name]
    if len(names) < len(found):
        raise CheckpointError(
            "quantization_config: modules_in_block_to_quantize is no list of names"
        )
    return names


def _weight(module: Module, form: _Form) -> QuantizedWeight:
    words, rows, size_out = module.matrix("qweight", ("I32",))
    size_in, count = rows * form.together, num_groups(rows * form.together, form.group)
    scales = module.part("scales", FLOATS, (count, size_out))
    zeros = module.part("qzeros", ("I32",), (count, -(-size_out // form.together)))
    order = grouping(module.maybe("g_idx", ("I32", "I64"), (size_in,)), size_in, form.group)

    def load() -> Parts:
        lifted = order.in_runs(codes(numbers(words).T, form.bits))
        points = _zeros(zeros, form)[:, :size_out].T[:, order.groups]
        factors = np.ascontiguousarray(numbers(scales).T[:, order.groups])
        if not form.symmetric:
            return lifted.astype(ml_dtypes.uint4), factors, points.astype(ml_dtypes.uint4)
        if (points != form.middle).any():
            raise CheckpointError(
                f"tensor {zeros.name} has zero points that are not {form.middle}, but quantization_config says sym true"
            )
        return signed(lifted, form.bits), factors

    return QuantizedWeight(
        name=f"{module.name}.weight",
        format=f"int{form.bits}" if form.symmetric else "uint4",
        group=form.group,
        shape=(size_out, size_in),
        scales_stored=scales.stored,
        num_bytes=module.num_bytes,
        load=load,
        row_scales=order.row_scales,
    )


def _zeros(tensor: Tensor, form: _Form) -> NDArray[Any]:
    """Read zero points `[groups, out]`."""
    stored: Codes = codes(numbers(tensor), form.bits)
    if not form.adds_one:
        return stored
    most = (1 << form.bits) - 1
    if (stored == most).any():
        raise UnsupportedError(
            f"tensor {tensor.name} has zero points of {most} less one for 0, which programs read as 0 or as {most + 1}; "
            "save the checkpoint as gptq_v2"
        )
    return stored + np.uint8(1)
