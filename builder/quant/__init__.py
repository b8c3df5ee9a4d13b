"""Number formats of weights: which layers get which, how they are packed, what that costs.

To add a format, write its file with `pack`, `unpack` and the constants of the others, and a line in FORMATS. ELEMENT and
SCALE are ONNX element types; ROUNDS_ROWS says that the graph rounds activations too, EMULATED_ON which targets multiply
the format's numbers in float32.
"""

from builder.quant import fp8, fp8_weight_only, int4, int8, mxfp4, nvfp4, uint4

FORMATS = {rules.NAME: rules for rules in (int8, int4, uint4, fp8, fp8_weight_only, nvfp4, mxfp4)}
"""Formats by name; `none` leaves weights in float."""


def is_emulated(name: str, target: str) -> bool:
    """Tell whether a target multiplies the numbers of a precision in float32, exactly as they are."""
    return name in FORMATS and target in FORMATS[name].EMULATED_ON


def name_of(element: str, scale: str, *, rounds_rows: bool) -> str:
    """Give the name of the format that is stored so; the element type where none is."""
    stored = (element, scale, rounds_rows)
    for name, rules in FORMATS.items():
        if stored == (rules.ELEMENT, rules.SCALE, rules.ROUNDS_ROWS):
            return str(name)
    return element.lower()
