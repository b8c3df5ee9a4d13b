"""Number formats of weights: which layers get which, how they are packed, what that costs.

To add a format, write its file with `pack`, `unpack` and the constants of the others, and a line in FORMATS. ELEMENT and
SCALE are ONNX element types; ROWS says how activations are rounded (`checkpoint/rows.py`), EMULATED_ON which targets multiply
the format's numbers in float32.
"""

from builder.quant import (
    fp8,
    fp8_block,
    fp8_dynamic,
    fp8_weight_only,
    int4,
    int8,
    int8_static,
    int8_weight_only,
    mxfp4,
    nvfp4,
    nvfp4_weight_only,
    uint4,
)

FORMATS = {
    rules.NAME: rules
    for rules in (
        int8, int8_static, int8_weight_only, int4, uint4,
        fp8, fp8_dynamic, fp8_block, fp8_weight_only, nvfp4, nvfp4_weight_only, mxfp4,
    )
}  # fmt: skip
"""Formats by name; `none` leaves weights in float."""


def is_emulated(name: str, target: str) -> bool:
    """Tell whether a target multiplies the numbers of a precision in float32, exactly as they are."""
    return name in FORMATS and target in FORMATS[name].EMULATED_ON


def name_of(element: str, scale: str, rows: str) -> str:
    """Give the name of the format that is stored so, with rows of this kind; the element type where none is."""
    stored = (element, scale, rows)
    for name, rules in FORMATS.items():
        if stored == (rules.ELEMENT, rules.SCALE, rules.ROWS):
            return str(name)
    return element.lower()
