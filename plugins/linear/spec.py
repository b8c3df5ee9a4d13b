"""The contract of Linear: `epilogue(rows @ weight.T * scale + bias)`, for a weight `[out, in]`.

float32: an output is one chain of fused additions over the inputs in ascending order. int8: both factors have a scale
per group of inputs; the sum of a group is an exact integer, and an output adds `sum * (weight scale * row scale)` over
the groups in ascending order. So an output's bits depend on its row alone, not on other rows, threads or tiles.

Epilogues: `none`; `add` (plus a residual row); `gate` (outputs come as 16 gates, then their 16 factors, and give
`activation(gate) * factor`, half as many); `activate` (`activation(output)`). What the last two give may be rounded
for the next layer.
"""

NAME = "Linear"
FORMS = ("float32", "int8")
EPILOGUES = ("none", "add", "gate", "activate")
ACTIVATIONS = ("silu", "gelu", "gelu_tanh", "relu")
PANEL = 16
"""Outputs that are packed together."""
