"""The contract of RmsNorm: `x / sqrt(mean(x * x) + eps) * weight` for each row, in float32 or rounded to int8.

Where the output has other rows than the input, it is taken of the rows whose logits are wanted alone.
"""

NAME = "RmsNorm"
