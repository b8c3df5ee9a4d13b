"""Read the weights of a cpu engine back: its plan says how each lies in its file, and joined names what lies in one.

Matrices of one input lie one after another, gate and up alternate by 16 outputs; vectors that belong to them likewise. The rows
that a matrix is multiplied with lie in a buffer, which has their fixed scale; what writes it has their order, and what they are multiplied with first.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from builder.artifact.manifest import EngineRecord
from builder.artifact.store import Artifact
from builder.checkpoint.groups import CHANNEL, Float32, num_groups
from builder.checkpoint.rows import RowScales
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Tensor
from builder.errors import ArtifactError
from builder.quant import FORMATS
from builder.quant.groups import Parts
from builder.targets.cpu import panels, plan
from builder.targets.cpu.panels import PANEL, Bytes
from builder.targets.cpu.plan import Buffer, Code, Epilogue, Form, Operation, WeightRange
from builder.targets.held import HeldWeight, Shape, weights_of

TYPES = {Form.INT4: ml_dtypes.int4, Form.UINT4: ml_dtypes.uint4}
"""Types of numbers that a panel gives in whole bytes."""


@dataclass(frozen=True, slots=True)
class _Stored:
    """One weight of the plan."""

    place: WeightRange
    raw: Callable[[], Bytes]
    names: tuple[str, ...]
    is_gated: bool
    """Whether its two parts alternate."""
    rows: RowScales


def held_weights(
    artifact: Artifact, engine: EngineRecord, shapes: Mapping[str, Shape]
) -> list[HeldWeight]:
    """List the weights that `shapes` names.

    Raises:
        ArtifactError: plan and weights don't go together.
    """
    buffers, places, operations = plan.decode(artifact.path(engine.path).read_bytes())
    tensors = read_safetensors(artifact.path(weights_of(engine)))
    if [place.num_bytes for place in places] != [one.nbytes_stored for one in tensors.values()]:
        raise ArtifactError(
            f"plan and weights of {engine.target} in {artifact.root} don't go together; compile the model again"
        )
    gates = [operation for operation in operations if operation.epilogue == Epilogue.GATE]
    gated = {index for gate in gates for index in (gate.weight, gate.bias)}
    raw = [_raw(tensor) for tensor in tensors.values()]
    rows = _rows_of_weights(buffers, operations, raw)
    found: list[HeldWeight] = []
    for index, (tensor, place) in enumerate(zip(tensors.values(), places, strict=True)):
        names = tuple(tensor.name.split("+"))
        if shapes.keys() >= set(names):
            fixed = rows.get(index, RowScales())
            stored = _Stored(place, raw[index], names, index in gated, fixed)
            found += _held(stored, shapes, engine)
    return found


def _raw(tensor: Tensor) -> Callable[[], Bytes]:
    assert tensor.raw is not None, "safetensors are read raw"
    return tensor.raw


def _rows_of_weights(
    buffers: Sequence[Buffer], operations: Sequence[Operation], raw: Sequence[Callable[[], Bytes]]
) -> dict[int, RowScales]:
    """Give what is fixed of the rows of each weight of a linear operation."""
    found: dict[int, RowScales] = {}
    writers: dict[int, Operation] = {}
    for operation in operations:
        if operation.code == Code.LINEAR:
            scale, rows = buffers[operation.input].scale, RowScales()
            writer = writers[operation.input]
            if writer.code == Code.QUANTIZE:
                rows = RowScales(
                    factors=_floats(raw, writer.weight), order=_order(raw, writer.extra)
                )
            found[operation.weight] = replace(rows, fixed=_number(scale) if scale else None)
        if operation.output != plan.NOTHING:
            writers[operation.output] = operation
    return found


def _number(value: float) -> Callable[[], Float32]:
    return lambda: np.array(value, np.float32)


def _floats(raw: Sequence[Callable[[], Bytes]], index: int) -> Callable[[], Float32] | None:
    return None if index == plan.NOTHING else lambda: raw[index]().view(np.float32)


def _order(
    raw: Sequence[Callable[[], Bytes]], index: int
) -> Callable[[], NDArray[np.int64]] | None:
    return None if index == plan.NOTHING else lambda: raw[index]().view("<i4").astype(np.int64)


def _without_padding(rows: RowScales, shape: Shape) -> RowScales:
    factors, order = rows.factors, rows.order
    return RowScales(
        rows.fixed,
        None if factors is None else lambda: factors()[: shape[1]],
        None if order is None else lambda: order()[: shape[1]],
    )


def _held(stored: _Stored, shapes: Mapping[str, Shape], engine: EngineRecord) -> list[HeldWeight]:
    """Give what lies together in one weight."""
    found, first = [], 0
    for index, name in enumerate(stored.names):
        shape, place = shapes[name], stored.place
        precision = engine.realized.get(name, place.form.name.lower())
        group = place.group
        if precision in FORMATS and group not in FORMATS[precision].GROUPS:
            group = CHANNEL
        rows = _rows_of(index, stored, first, shape[0])
        read = _reading(stored, rows, shape, group)
        fixed = _without_padding(stored.rows, shape)
        found.append(HeldWeight(name, precision, group, shape, read, fixed))
        first += shape[0]
    return found


def _rows_of(index: int, stored: _Stored, first: int, count: int) -> NDArray[np.int64]:
    """Give where the outputs of a part lie."""
    rows = np.arange(count)
    if not stored.is_gated:
        return first + rows
    return rows // PANEL * len(stored.names) * PANEL + index * PANEL + rows % PANEL


def _reading(
    stored: _Stored, rows: NDArray[np.int64], shape: Shape, group: int
) -> Callable[[], Parts]:
    place = stored.place
    if len(shape) == 1:  # a vector is in its own order, not in panels
        return lambda: (stored.raw().view(np.float32)[rows],)

    def read() -> Parts:
        form, size_in = place.form, shape[1]
        found = panels.from_panels(form, place.group, stored.raw(), place.size_out, place.size_in)
        numbers, *rest = (part[rows] for part in found)
        count = num_groups(size_in, group)
        numbers = numbers[:, :size_in].astype(TYPES.get(form, numbers.dtype), copy=False)
        if form == Form.E2M1 and len(rest) > 1:
            scales, factors = rest
            return numbers, scales[:, :count], factors[0, 0]
        return numbers, *(part[:, :count] for part in rest)

    return read
