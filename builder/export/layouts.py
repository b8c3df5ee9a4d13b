"""Which layout of checkpoints holds which format, and what each writes for a weight.

To add a format, give it a line in LAYOUTS; to add a layout, a file with its tensors and its section of config.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from builder.artifact.weights import WeightSpec
from builder.errors import UnsupportedError
from builder.export import block_fp8, compressed_tensors, modelopt
from builder.export.kv_scales import COMPRESSED_TENSORS, MODELOPT, KVNames
from builder.quant import FORMATS
from builder.quant.plan import BFLOAT16
from builder.targets.held import HeldWeight

Tensors = Callable[[HeldWeight], list[WeightSpec]]
Section = Callable[[Sequence[HeldWeight]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a checkpoint says that its weights are quantized."""

    name: str
    tensors: Tensors
    """Of one weight."""
    section: Section
    """The quantization_config, from all matrices."""
    kv: KVNames | None
    """How it names the scales of keys and values, if it has any."""


PLAIN = "Hugging Face"
PACKED = Layout(
    "compressed-tensors pack-quantized",
    compressed_tensors.packed,
    compressed_tensors.section,
    COMPRESSED_TENSORS,
)
INT8_STATIC = Layout(
    "modelopt W8A8_SQ_PER_CHANNEL",
    modelopt.int8_by_outputs,
    modelopt.section("W8A8_SQ_PER_CHANNEL"),
    MODELOPT,
)
LAYOUTS = {
    "int8": PACKED,
    "int8-static": INT8_STATIC,
    "int4": PACKED,
    "uint4": PACKED,
    "fp8": Layout("modelopt FP8", modelopt.fp8, modelopt.section("FP8"), MODELOPT),
    "fp8-dynamic": Layout(
        "modelopt FP8_PER_CHANNEL_PER_TOKEN",
        modelopt.fp8_by_outputs,
        modelopt.section("FP8_PER_CHANNEL_PER_TOKEN"),
        MODELOPT,
    ),
    "fp8-block": Layout("fp8 in blocks of 128 x 128", block_fp8.blocks, block_fp8.section, None),
    "fp8-weight-only": Layout(
        "compressed-tensors float-quantized",
        compressed_tensors.fp8_by_outputs,
        compressed_tensors.section,
        COMPRESSED_TENSORS,
    ),
    "nvfp4": Layout("modelopt NVFP4", modelopt.nvfp4, modelopt.section("NVFP4", 16), MODELOPT),
    "nvfp4-weight-only": Layout(
        "modelopt W4A16_NVFP4", modelopt.nvfp4, modelopt.section("W4A16_NVFP4", 16), MODELOPT
    ),
}
"""The layout of each format that has one, which our own importer reads as the same format."""
SMOOTHED = {
    "int8-static": INT8_STATIC,
    "int4": Layout("modelopt W4A16_AWQ", modelopt.awq, modelopt.awq_section, MODELOPT),
}
"""That of formats with weights whose rows are multiplied with numbers first, one per input."""


def layout_of(weights: Sequence[HeldWeight]) -> Layout | None:
    """Choose the layout for all weights of a checkpoint; None where all are floats.

    Raises:
        UnsupportedError: a format has none, or two of them have different ones.
    """
    smoothed = {weight.precision for weight in weights if weight.rows.factors is not None}
    found: dict[str, tuple[str, Layout]] = {}
    for precision in dict.fromkeys(weight.precision for weight in weights):
        if precision in FORMATS:
            one = _layout(precision, precision in smoothed)
            found.setdefault(one.name, (precision, one))
    if len(found) > 1:
        pairs = " and ".join(f"{precision} ({name})" for name, (precision, _) in found.items())
        raise UnsupportedError(
            f"the artifact holds {pairs}, which no one layout of checkpoints holds; compile with one of them"
        )
    layout = next((layout for _, layout in found.values()), None)
    ordered = next((weight for weight in weights if weight.rows.order is not None), None)
    if ordered is not None and layout is not PACKED:
        raise UnsupportedError(
            f"{ordered.name} has groups in the order of activations, which only layout {PACKED.name} holds"
        )
    return layout


def _layout(precision: str, is_smoothed: bool) -> Layout:
    known = SMOOTHED if is_smoothed else LAYOUTS
    if precision in known:
        return known[precision]
    rows, floats = "", "float32, bfloat16, "
    if is_smoothed:
        rows, floats = " with rows that are multiplied with numbers per input first", ""
    raise UnsupportedError(
        f"the artifact holds weights in {precision}{rows}, which no layout of checkpoints gives back as they are; "
        f"exported can be {floats}{', '.join(known)}{' with such rows' if is_smoothed else ''}"
    )


def specs_of(weight: HeldWeight, layout: Layout | None) -> list[WeightSpec]:
    """Give the tensors that stand for a weight."""
    if weight.precision in FORMATS:
        assert layout is not None, "layout_of has one for every format"
        return layout.tensors(weight)
    dtype = "BF16" if weight.precision == BFLOAT16 else "F32"
    view = "u2" if dtype == "BF16" else "f4"
    return [WeightSpec(weight.name, dtype, weight.shape, lambda: weight.read()[0].view(view))]
