"""FP8 as DeepSeek and Qwen publish it (`quant_method` fp8): E4M3 with one scale per block, most often 128 x 128.

`weight` E4M3 `[out, in]`, `weight_scale_inv` `[out / 128, in / 128]`, by which numbers are multiplied in spite of its name. Without
`weight_block_size`, `weight_scale` is one number.
"""

from collections.abc import Mapping

from builder.checkpoint.quantized.fields import Fields, as_block
from builder.checkpoint.quantized.floats import fp8_by_blocks, fp8_by_rows
from builder.checkpoint.quantized.modules import Found, check_lists, names_run, quantized_modules
from builder.checkpoint.rows import BLOCK, BLOCK_SIZE, TENSOR, TOKEN
from builder.checkpoint.tensors import Tensor
from builder.checkpoint.weights import HEAD
from builder.errors import UnsupportedError

PARTS = ("weight_scale_inv", "weight_scale", "input_scale")


def read(fields: Fields, tensors: Mapping[str, Tensor]) -> Found:
    """Find the layers that are quantized, and their weights.

    Raises:
        CheckpointError: tensors and config contradict each other.
        UnsupportedError: it is of a kind that is not implemented.
    """
    scheme = fields.choice("activation_scheme", ("dynamic", "static"), default="dynamic")
    fields.choice("fmt", ("e4m3", "float8_e4m3fn"), default="e4m3")
    block = _block(fields)
    if block is not None and scheme == "static":
        raise fields.unsupported("activation_scheme", f"{scheme} with blocks", ("dynamic",))
    excluded = fields.names("modules_to_not_convert", "ignored_layers")
    fields.finish()
    modules = quantized_modules(tensors, PARTS)
    check_lists(
        tensors,
        modules,
        is_excluded=lambda name: names_run(excluded, name),
        is_target=lambda name: f"{name}.weight" != HEAD,
    )
    weights = [
        fp8_by_rows(module, "weight_scale", TENSOR if scheme == "static" else TOKEN)
        if block is None
        else fp8_by_blocks(module, "weight_scale_inv", block, _rows(block))
        for module in modules
    ]
    return Found(modules, weights)


def _rows(block: tuple[int, int]) -> str:
    """Name the kind of rows of blocks: each token has scales for the same inputs."""
    return BLOCK if block[1] == BLOCK_SIZE else f"token and {block[1]} inputs"


def _block(fields: Fields) -> tuple[int, int] | None:
    value = fields.take("weight_block_size")
    if value is None:
        return None
    block = as_block(value)
    if block is None:
        raise UnsupportedError(
            "quantization_config: weight_block_size must be two sizes, such as [128, 128]"
        )
    return block
