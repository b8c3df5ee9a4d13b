"""FP8 weights as `fp8` has them, with activations as they are (W8A16)."""

from builder.quant import fp8

NAME = "fp8-weight-only"
HEAD, HEAD_GROUP = fp8.HEAD, fp8.HEAD_GROUP
BITS, GROUP, GROUPS = fp8.BITS, fp8.GROUP, fp8.GROUPS
TARGETS = ("cpu", "portable")
EMULATED_ON = ("cpu", "portable")
IS_ROTATED = False
HAS_ZERO_POINTS = False
ELEMENT, SCALE = fp8.ELEMENT, fp8.SCALE
ROUNDS_ROWS = False
pack, unpack, error_bound = fp8.pack, fp8.unpack, fp8.error_bound
