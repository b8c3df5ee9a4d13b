"""The weights that an engine holds, read back from its files in the numbers that it computes with.

Names are the graph's, which are those of Hugging Face. Nothing of the checkpoint is needed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, cast

from builder.artifact.manifest import EngineRecord
from builder.artifact.store import Artifact
from builder.checkpoint.rows import RowScales
from builder.errors import ArtifactError
from builder.quant.groups import Parts
from builder.targets import import_half

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HeldWeight:
    """One weight; its numbers are read when they are wanted."""

    name: str
    precision: str
    """`float32`, `bfloat16` or a format."""
    group: int
    """Inputs that share a scale; 0 for one scale per output, and for floats."""
    shape: Shape
    read: Callable[[], Parts]
    """Numbers `[*shape]`, and of a format what else its `unpack` takes."""
    rows: RowScales = field(default_factory=RowScales)
    """What is fixed of the rows that it is multiplied with."""


class Holder(Protocol):
    """What `held.py` of a target offers."""

    def held_weights(
        self, artifact: Artifact, engine: EngineRecord, shapes: Mapping[str, Shape]
    ) -> list[HeldWeight]:
        """List the weights that `shapes` names; tables that no checkpoint has are left out."""
        ...


def held_weights(
    artifact: Artifact, target: str, shapes: Mapping[str, Shape]
) -> dict[str, HeldWeight]:
    """Give the weights of a target's engine by name, of those that have a shape here.

    Raises:
        ArtifactError: there is no engine for the target, or its files are not what a compiler writes.
        UnsupportedError: it holds a weight in a way that can't be read back.
    """
    engine = artifact.engine(target)
    holder = cast("Holder", import_half(target, "held"))
    return {weight.name: weight for weight in holder.held_weights(artifact, engine, shapes)}


def weights_of(engine: EngineRecord) -> str:
    """Give the file of an engine's weights.

    Raises:
        ArtifactError: it has none.
    """
    if engine.weights is None:
        raise ArtifactError(f"the engine for {engine.target} has no file of weights")
    return engine.weights
