"""INT8 weights alone (W8A16): one scale per output, max |w| / 127; activations stay as they are."""

from builder.checkpoint.groups import CHANNEL
from builder.checkpoint.rows import FLOAT
from builder.quant import int8_static

NAME = "int8-weight-only"
HEAD, HEAD_GROUP = "float32", 0
BITS = 8
GROUP = CHANNEL
GROUPS = (CHANNEL,)
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = "INT8", "FLOAT"
ROWS = FLOAT

pack, unpack, error_bound = int8_static.pack, int8_static.unpack, int8_static.error_bound
