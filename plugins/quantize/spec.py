"""The contract of Quantize: rows of float32 become int8 with one float32 scale per group of numbers.

A number becomes `round(x * (127 / peak))`, half to even, and its group's scale `peak / 127`, where peak is the largest
magnitude of the group; a group of zeros has scale 0. A group with a NaN or an infinity has a NaN for its scale, so
that no result hides it. Rows are padded with zeros to whole groups.
"""

NAME = "Quantize"
GROUPS = (32, 64, 128)
