"""A plan made from what a checkpoint holds quantized already, instead of from options: nothing is quantized twice.

Integers and scales are the checkpoint's. Where a target has no groups of their size, a group becomes several with the same
scale, which is exact. All other weights stay as they are: bfloat16 where they are stored so, else float32.
"""

from collections import Counter
from collections.abc import Callable

from builder.checkpoint import rows as kinds
from builder.checkpoint.groups import CHANNEL, num_groups
from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.rows import RowScales
from builder.checkpoint.tensors import FLOATS, Checkpoint
from builder.checkpoint.weights import EMBEDDING, HEAD
from builder.errors import UnsupportedError
from builder.graph.graph import Graph
from builder.quant.balance import balanced
from builder.quant.groups import Parts
from builder.quant.plan import (
    BFLOAT16,
    FLOAT32,
    Precision,
    QuantPlan,
    graph_ends,
    linear_weights,
)

GroupsOf = Callable[[str], tuple[int, ...]]
"""The groups that a target has for a format."""


NAMES = {
    ("int8", kinds.TENSOR): "int8-static",
    ("fp8", kinds.TENSOR): "fp8",
    ("fp8", kinds.TOKEN): "fp8-dynamic",
    ("fp8", kinds.BLOCK): "fp8-block",
    ("fp8", kinds.FLOAT): "fp8-weight-only",
    ("nvfp4", kinds.SIXTEEN): "nvfp4",
    ("nvfp4", kinds.FLOAT): "nvfp4-weight-only",
}
"""Our names of formats, by a checkpoint's and by how the rows are rounded that they are multiplied with."""


INTEGERS = ("int8", "int4", "uint4")
"""Formats of checkpoints whose scales target cpu keeps in half precision."""


NEAREST = Precision("int8", 32)
"""What blocks become that no format has."""


def format_of(weight: QuantizedWeight, method: str | None) -> str:
    """Name the format of a weight of a checkpoint that `method` quantized.

    Raises:
        UnsupportedError: its rows are rounded in a way that is not implemented.
    """
    if weight.rows == kinds.ANY:
        return weight.format
    if (weight.format, weight.rows) not in NAMES:
        known = ", ".join(f"{name} by {rows} rows" for name, rows in NAMES)
        raise UnsupportedError(
            f"{weight.name} is {weight.format} ({method}), with a scale per {weight.rows} in the rows that it is multiplied "
            f"with, which is read but not compiled; supported: {known}"
        )
    return NAMES[weight.format, weight.rows]


def imported_precision(checkpoint: Checkpoint) -> Precision | None:
    """Give the precision that most quantized numbers of a checkpoint have; None if it holds floats.

    Raises:
        UnsupportedError: one has a format that is not implemented.
    """
    counts: Counter[Precision] = Counter()
    ends = (EMBEDDING, HEAD)  # which are most of a tiny model, and tell nothing of its layers
    for name, weight in sorted(checkpoint.quantized.items(), key=lambda item: item[0] in ends):
        if counts and name in ends:
            break
        precision = Precision(format_of(weight, checkpoint.method), weight.group)
        counts[precision] += weight.shape[0] * weight.shape[1]
    return counts.most_common(1)[0][0] if counts else None


def refuse_others(found: Precision, quant: str, group: int | None, dtype: str) -> None:
    """Refuse options that ask for anything but what the checkpoint is.

    Raises:
        UnsupportedError: they do.
    """
    is_other = quant not in ("none", found.name) or group not in (None, found.group)
    if is_other or dtype != FLOAT32:
        asked = [f"format {quant}"] if quant != "none" else []
        asked += [] if group is None else [f"--group {group or 'channel'}"]
        asked += [] if dtype == FLOAT32 else [f"--dtype {dtype}"]
        raise UnsupportedError(
            f"{', '.join(asked)}: the checkpoint is quantized already, to {found.label}, and nothing is quantized "
            "twice; leave it out, or compile the checkpoint of the same model in float16 or bfloat16"
        )


def regrouped(precision: Precision, groups: tuple[int, ...], name: str) -> Precision:
    """Give the precision with the largest groups that a target has and that divide its own.

    Raises:
        UnsupportedError: none does; `name` says whose they are.
    """
    fitting = [size for size in groups if size and precision.group % size == 0]
    if precision.group in groups:
        return precision
    if not fitting:
        allowed = ", ".join(str(size) if size != CHANNEL else "channel" for size in groups)
        raise UnsupportedError(
            f"{name} is {precision.name} in groups of {precision.group}, which the target does not run; supported: "
            f"{allowed}, and multiples of them"
        )
    return Precision(precision.name, max(fitting))


def float_precision(checkpoint: Checkpoint, name: str) -> Precision:
    """Give the precision of a weight that no format keeps in its bits.

    float16 needs float32 to be exact. GGUF blocks of other types, as heads often have, become what is nearest.
    """
    tensor = checkpoint.tensors.get(name)
    if tensor is not None and tensor.stored not in FLOATS:
        return NEAREST
    is_narrow = tensor is not None and tensor.stored == BFLOAT16
    return Precision(BFLOAT16 if is_narrow else FLOAT32)


def precision_of_ends(checkpoint: Checkpoint) -> Precision:
    """Give the precision of head and embedding table, for estimates."""
    found = [
        checkpoint.quantized[name] for name in (HEAD, EMBEDDING) if name in checkpoint.quantized
    ]
    if found:
        return Precision(format_of(found[0], checkpoint.method), found[0].group)
    return float_precision(checkpoint, EMBEDDING)


def plan_imported(graph: Graph, checkpoint: Checkpoint, groups_of: GroupsOf) -> QuantPlan:
    """Give every weight the precision that it has in the checkpoint, and the parts of those that are quantized.

    Raises:
        UnsupportedError: the target has no groups for one, or one is no weight of a linear layer.
    """
    found = imported_precision(checkpoint)
    assert found is not None, "only for checkpoints that are quantized"
    names = [str(value.name) for value in (*linear_weights(graph.model), *graph_ends(graph.model))]
    left = sorted(set(checkpoint.quantized) - set(names))
    if left:
        raise UnsupportedError(f"{left[0]} is quantized, but is no weight of a linear layer here")
    layers: dict[str, Precision] = {}
    parts: dict[str, Callable[[], Parts]] = {}
    rows: dict[str, RowScales] = {}
    for name in names:
        weight = checkpoint.quantized.get(name)
        if weight is None:
            layers[name] = float_precision(checkpoint, name)
            continue
        own = Precision(format_of(weight, checkpoint.method), weight.group)
        layers[name] = regrouped(own, groups_of(own.name), name)
        read, rows[name] = balanced(weight)
        parts[name] = _parts_of(weight, read, layers[name].group)
    narrow = {name: precision for name, precision in layers.items() if precision.name != FLOAT32}
    return QuantPlan(
        f"{found.label} as in the checkpoint ({checkpoint.method})", narrow, parts, rows
    )


def exact_notes(checkpoint: Checkpoint, targets: tuple[str, ...]) -> list[str]:
    """Say what of a quantized checkpoint can't be held as it is stored."""
    notes = []
    if "cpu" in targets and any(
        weight.scales_stored == FLOAT32 and weight.format in INTEGERS
        for weight in checkpoint.quantized.values()
    ):
        notes.append(
            "the checkpoint has float32 scales, of which target cpu keeps 11 bits; --target portable keeps all"
        )
    for name in (EMBEDDING, HEAD) if checkpoint.quantized else ():
        tensor = checkpoint.tensors.get(name)
        if tensor is not None and name not in checkpoint.quantized and tensor.stored not in FLOATS:
            notes.append(f"{name} is {tensor.stored}, which is rounded to {NEAREST.label}")
    return notes


def block_notes(checkpoint: Checkpoint, asked: Precision) -> list[str]:
    """Say what becomes of GGUF blocks that no format holds, where layers are asked for in a precision."""
    kinds = Counter(
        tensor.stored for tensor in checkpoint.tensors.values() if tensor.stored not in FLOATS
    )
    if checkpoint.quantized or not kinds:
        return []
    found = ", ".join(f"{count} x {kind}" for kind, count in kinds.most_common())
    fate = "which loses nothing"
    if asked.name != FLOAT32:
        fate = f"and then rounded again, to {asked.label}; without a format they become float32, which loses nothing"
    return [
        f"the checkpoint has weights in blocks that no format here holds for all layers ({found}): they are dequantized to float32, {fate}"
    ]


def _parts_of(
    weight: QuantizedWeight, read_parts: Callable[[], Parts], group: int
) -> Callable[[], Parts]:
    """Read parts of a weight with the scales and zero points of smaller groups repeated."""

    def read() -> Parts:
        numbers, *rest = read_parts()
        if group == weight.group:
            return numbers, *rest
        count = num_groups(weight.shape[1], group)
        times = weight.group // group if weight.group else count
        return numbers, *(part.repeat(times, axis=1)[:, :count] for part in rest)

    return read
