"""The contracts of operations that round rows of float32 to what the next layer multiplies.

A scale belongs to a group of numbers, to a row, or to a tensor (fixed: known before, the same for all rows). Numbers with
one scale become NaN together: where a NaN or an infinity is among them, and be it in a row of a fixed scale, no result
may hide it. Before, the numbers of a row may be put in an order, int32 `[in]`, and multiplied with factors, `[in]`. All divisions, roundings (half to even) and products are those of float32. Rows are padded with zeros.

Quantize: rows become int8 with one float32 scale per group of numbers. A number becomes `round(x * (127 / peak))` and its
group's scale `peak / 127`, where peak is the largest magnitude of the group; a group whose peak is below 2**-120 becomes
zeros with scale 0. With a fixed scale a number becomes `round(x / scale)`, no less than -127 and no more than 127, and
every group has that scale. Numbers are symmetric, as instructions that negate a factor can't take -128: what lies at
-127.5 scales or below is cut there, where a QuantizeLinear cuts it one step lower. A group with a NaN or an infinity has a
NaN for its scale.

QuantizeDynamic, an operation of graphs: each row, or each `block_size` numbers of a row (the last of which may be fewer),
has one scale, `max(peak / 448, 2**-126)`, and its numbers become `round(x / scale) * scale`, rounded to E4M3 (FP8), that
is, the float32 numbers which FP8 hardware multiplies. With a fixed scale, in graphs a QuantizeLinear and a
DequantizeLinear, numbers beyond `448 * scale` become that.

QuantizeFP4, an operation of graphs (NVFP4): 16 numbers share the scale `E4M3(min(peak / (6 * scale), 448)) * scale`, with
the fixed scale of the tensor, and become `round(x / group's scale) * group's scale`, rounded to E2M1: 0, 0.5, 1, 1.5, 2,
3, 4 or 6, which all beyond becomes. A group whose scale rounds to 0 becomes 0.
"""

NAME = "Quantize"
GROUPS = (32, 64, 128)
DOMAIN, DYNAMIC, FP4 = "forerun", "QuantizeDynamic", "QuantizeFP4"
LARGEST_INT8 = 127
LARGEST_E4M3 = 448.0
LARGEST_E2M1, GROUP_E2M1 = 6.0, 16
LEAST_PEAK, LEAST_SCALE = 2.0**-120, 2.0**-126
FIXED_SCALES = (2.0**-100, 2.0**100)
"""Within these a fixed scale must lie: then no scale of a group is below float32's, and no number beyond."""
