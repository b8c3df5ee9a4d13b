"""The contracts of Quantize and QuantizeDynamic: rows of float32 are rounded to what the next layer multiplies.

Quantize: rows become int8 with one float32 scale per group of numbers.

A number becomes `round(x * (127 / peak))`, half to even, and its group's scale `peak / 127`, where peak is the largest
magnitude of the group; a group of zeros has scale 0. A group with a NaN or an infinity has a NaN for its scale, so
that no result hides it. Rows are padded with zeros to whole groups.

QuantizeDynamic, an operation of graphs: a row has one scale, `max(peak / 448, 2**-126)`, and its numbers become
`round(x / scale) * scale`, rounded half to even to E4M3 (FP8), that is, the float32 numbers which FP8 hardware multiplies. A
row with a NaN or an infinity becomes all NaN.
"""

NAME = "Quantize"
GROUPS = (32, 64, 128)
DOMAIN, DYNAMIC = "forerun", "QuantizeDynamic"
LARGEST_E4M3 = 448.0
LEAST_SCALE = 2.0**-126
