"""NVFP4 weights and activations (W4A4): E2M1 times an E4M3 scale per 16 inputs times one float32 scale of the whole tensor.

Weights are those of nvfp4_weight_only. Activations get the scales of their sixteens when a step runs; the scale of their
tensor, max |x| / (6 * 448), is calibrated, or the checkpoint's.
"""

from builder.checkpoint.rows import SIXTEEN
from builder.quant import nvfp4_weight_only

NAME = "nvfp4"
HEAD, HEAD_GROUP = nvfp4_weight_only.HEAD, nvfp4_weight_only.HEAD_GROUP
BITS = 4
GROUP = 16
GROUPS = (16,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT4E2M1", "FLOAT8E4M3FN"
ROWS = SIXTEEN

pack, unpack, error_bound = (
    nvfp4_weight_only.pack,
    nvfp4_weight_only.unpack,
    nvfp4_weight_only.error_bound,
)
