"""FP8 weights alone (W8A16): those of fp8_dynamic, or with a scale per 128 inputs; activations stay as they are."""

from builder.checkpoint.groups import CHANNEL
from builder.checkpoint.rows import BLOCK_SIZE, FLOAT
from builder.quant import fp8_dynamic

NAME = "fp8-weight-only"
HEAD, HEAD_GROUP = fp8_dynamic.HEAD, fp8_dynamic.HEAD_GROUP
BITS = 8
GROUP = CHANNEL
GROUPS = (CHANNEL, BLOCK_SIZE)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "FLOAT8E4M3FN", "FLOAT"
ROWS = FLOAT

pack, unpack, error_bound = fp8_dynamic.pack, fp8_dynamic.unpack, fp8_dynamic.error_bound
