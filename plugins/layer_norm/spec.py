"""The contract of LayerNorm: `(x - mean) / sqrt(variance + eps) * weight + bias` for each row, in any form of a buffer.

The bias may be absent. Where the output has other rows than the input, it is taken of the rows whose logits are
wanted alone.
"""

NAME = "LayerNorm"
