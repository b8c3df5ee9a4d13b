"""Which layout of checkpoints holds which format, and what each writes for a weight.

To add a format, give it a line in LAYOUTS; to add a layout, a file with its tensors and its section of config.json.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from builder.artifact.weights import WeightSpec
from builder.errors import UnsupportedError
from builder.export import compressed_tensors, modelopt
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


PLAIN = "Hugging Face"
PACKED = Layout(
    "compressed-tensors pack-quantized", compressed_tensors.packed, compressed_tensors.section
)
LAYOUTS = {
    "int8": PACKED,
    "int4": PACKED,
    "uint4": PACKED,
    "fp8-dynamic": Layout(
        "modelopt FP8_PER_CHANNEL_PER_TOKEN",
        modelopt.fp8_by_outputs,
        modelopt.section("FP8_PER_CHANNEL_PER_TOKEN"),
    ),
    "fp8-weight-only": Layout(
        "compressed-tensors float-quantized",
        compressed_tensors.fp8_by_outputs,
        compressed_tensors.section,
    ),
    "nvfp4-weight-only": Layout(
        "modelopt W4A16_NVFP4", modelopt.nvfp4, modelopt.section("W4A16_NVFP4", 16)
    ),
}
"""The layout of each format that has one, which our own importer reads as the same format."""


def layout_of(weights: Sequence[HeldWeight]) -> Layout | None:
    """Choose the layout for all weights of a checkpoint; None where all are floats.

    Raises:
        UnsupportedError: a format has none, or two of them have different ones.
    """
    found: dict[str, str] = {}
    for precision in dict.fromkeys(weight.precision for weight in weights):
        if precision not in FORMATS:
            continue
        if precision not in LAYOUTS:
            raise UnsupportedError(
                f"the artifact holds weights in {precision}, which no layout of checkpoints that other programs read holds; "
                f"exported can be float32, bfloat16, {', '.join(LAYOUTS)}"
            )
        found.setdefault(LAYOUTS[precision].name, precision)
    if len(found) > 1:
        pairs = " and ".join(f"{precision} ({name})" for name, precision in found.items())
        raise UnsupportedError(
            f"the artifact holds {pairs}, which no one layout of checkpoints holds; compile with one of them"
        )
    return LAYOUTS[next(iter(found.values()))] if found else None


def specs_of(weight: HeldWeight, layout: Layout | None) -> list[WeightSpec]:
    """Give the tensors that stand for a weight."""
    if weight.precision in FORMATS:
        assert layout is not None, "layout_of has one for every format"
        return layout.tensors(weight)
    dtype = "BF16" if weight.precision == BFLOAT16 else "F32"
    view = "u2" if dtype == "BF16" else "f4"
    return [WeightSpec(weight.name, dtype, weight.shape, lambda: weight.read()[0].view(view))]
