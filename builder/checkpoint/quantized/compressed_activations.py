"""How compressed-tensors says what becomes of the rows that a layer multiplies (`input_activations`)."""

from builder.checkpoint.groups import CHANNEL
from builder.checkpoint.quantized.fields import Fields
from builder.checkpoint.quantized.floats import NVFP4_GROUP
from builder.checkpoint.rows import ANY, BLOCK, BLOCK_SIZE, SIXTEEN, TENSOR, TOKEN

HARMLESS_OF_NUMBERS = ("observer", "observer_kwargs", "scale_dtype", "zp_dtype")
GROUPED = ("group", "tensor_group")
ROWS = {
    ("int", 8, True, "token", CHANNEL): ANY,
    ("int", 8, False, "tensor", CHANNEL): TENSOR,
    ("float", 8, True, "token", CHANNEL): TOKEN,
    ("float", 8, True, "group", BLOCK_SIZE): BLOCK,
    ("float", 8, False, "tensor", CHANNEL): TENSOR,
    ("float", 4, "local", "tensor_group", NVFP4_GROUP): SIXTEEN,
}
"""Kinds of rows by type, bits, dynamic, strategy and group size."""


def read_activations(rows: Fields) -> str:
    """Give the kind of rows, by a name of its own if it is one that isn't implemented.

    Raises:
        UnsupportedError: they have zero points, or a number of bits that none has.
    """
    kind = rows.choice("type", ("int", "float"), default="int")
    bits = rows.choice("num_bits", (4, 8))
    rows.choice("symmetric", (True,), default=True)
    dynamic = rows.take("dynamic") or False
    if dynamic not in (True, False, "local"):
        raise rows.unsupported("dynamic", dynamic, (True, False, "local"))
    shared = str(rows.take("strategy") or "tensor")
    group = rows.group("group_size")
    for name in ("block_structure", "actorder"):
        rows.take(name)
    rows.finish(HARMLESS_OF_NUMBERS)
    return ROWS.get(
        (kind, bits, dynamic, shared, group if shared in GROUPED else CHANNEL),
        f"{shared} ({kind}{bits}, {'fixed' if dynamic is False else 'dynamic'})",
    )
