"""Number formats of weights: which layers get which, how they are packed, what that costs.

To add a format, write its file with `pack`, `unpack`, `error_bound`, and a line in FORMATS.
"""

from builder.quant import int8

FORMATS = {int8.NAME: int8}
"""Formats by name; `none` leaves weights in float."""
