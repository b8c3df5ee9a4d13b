"""Number formats of weights: which layers get which, how they are packed, what that costs.

To add a format, write its file with `pack`, `unpack` and the constants of the others, and a line in FORMATS.
"""

from builder.quant import int4, int8, uint4

FORMATS = {rules.NAME: rules for rules in (int8, int4, uint4)}
"""Formats by name, which is that of the ONNX element type; `none` leaves weights in float."""
