"""Arrange the weights of an engine as a checkpoint has them: an embedding table in floats, a head of its own where it must be.

A table that is read by the lookup and by the head is one weight in an engine even when it is quantized; programs that read
checkpoints look tokens up in floats alone. So a quantized table is written in the float32 numbers that it stands for, which are
exactly those that the engine looks up, and once more, in its bits, as the head.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from builder import archs
from builder.artifact.config import ModelConfig
from builder.artifact.store import Artifact
from builder.checkpoint.groups import Float32
from builder.checkpoint.rows import RowScales
from builder.checkpoint.weights import EMBEDDING, HEAD
from builder.errors import UnsupportedError
from builder.quant import FORMATS
from builder.quant.groups import Parts
from builder.quant.plan import FLOAT32
from builder.quant.rotate import AGAIN
from builder.targets.held import HeldWeight, held_weights


@dataclass(frozen=True, slots=True)
class Arranged:
    """The weights of a checkpoint, in the order of its graph, and the config that goes with them."""

    config: ModelConfig
    weights: tuple[HeldWeight, ...]


def arrange(artifact: Artifact, target: str) -> Arranged:
    """Read which weights the engine of a target holds, and give each its place in a checkpoint.

    Raises:
        ArtifactError: the engine's files are not what a compiler writes.
        UnsupportedError: a weight of the checkpoint can't be had from them.
    """
    config = artifact.manifest.model
    shapes = archs.weight_shapes(config)
    again = {f"{name}{AGAIN}": shapes[name] for name in (EMBEDDING,) if config.tied_head}
    held = held_weights(artifact, target, shapes | again)
    missing = [name for name in shapes if name not in held]
    if missing:
        raise UnsupportedError(
            f"the {target} engine of {artifact.root} does not hold {missing[0]} as a weight of its own, so it can't be written back"
        )
    ends = dict(_ends(held))
    weights = {name: ends.get(name, held[name]) for name in shapes} | ends
    return Arranged(replace(config, tied_head=HEAD not in weights), tuple(weights.values()))


def _ends(held: Mapping[str, HeldWeight]) -> Iterator[tuple[str, HeldWeight]]:
    """Give the embedding table, and the head where it is another weight."""
    table = held[EMBEDDING]
    head = held.get(HEAD) or held.get(f"{EMBEDDING}{AGAIN}")
    if table.precision in FORMATS:
        yield EMBEDDING, in_floats(table)
        head = head or table
    if head is not None:
        yield HEAD, replace(head, name=HEAD)


def in_floats(weight: HeldWeight) -> HeldWeight:
    """Give a weight in float32, with the numbers that its own stand for."""

    def read() -> Parts:
        floats: Float32 = FORMATS[weight.precision].unpack(*weight.read(), weight.group)
        return (floats,)

    return replace(weight, precision=FLOAT32, group=0, read=read, rows=RowScales())
