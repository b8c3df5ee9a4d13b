"""The contract of Linear: `epilogue(rows @ weight.T * scale + bias)`, for a weight `[out, in]`.

float32: an output is one chain of fused additions over the inputs in ascending order. e4m3, e2m1 and widened_int8: the
same with the float32 weights that they stand for, number times scale, to the bit. bfloat16: rows and weights are,
products are added in float32; a build adds in one order for every number of rows. Integers: rows have a scale per group
of inputs, weights one per group or per several; the sum of a group is an exact integer, zero points included, and an
output adds `sum * (weight scale * row scale)` over the groups in ascending order. So an output's bits depend on its row
alone, not on other rows, threads or tiles.

Epilogues: `none`; `add` (plus a residual row); `gate` (outputs come as 16 gates, then their 16 factors, and give
`activation(gate) * factor`, half as many); `activate` (`activation(output)`). What the last two give may be rounded
for the next layer.
"""

NAME = "Linear"
FORMS = ("float32", "bfloat16", "int8", "int4", "uint4", "e4m3", "e2m1", "widened_int8")
EPILOGUES = ("none", "add", "gate", "activate")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")
PANEL = 16
"""Outputs that are packed together."""
