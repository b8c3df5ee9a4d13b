"""The compiling half of a target: a quantized graph in, an engine file out, without the target's hardware."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from builder.artifact.config import KVGeometry, ModelConfig
from builder.artifact.manifest import EngineRecord
from builder.graph.graph import LoweredGraph, QuantizedGraph
from builder.quant.plan import Precision, precision_of
from builder.quant.recipes import number_formats
from builder.targets import import_half


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What a build asks of every target."""

    dtype: str = "float32"
    """Element type of float weights, activations and KV."""
    quant: str = "none"
    """Format of quantized weights, the name of what calibrates one, or `none`."""
    group: int | None = None
    """Inputs that share a scale of quantized weights, 0 for one scale per output; None for the format's own."""
    bits: float | None = None
    """Budget for a weight on average, where formats are searched for."""
    kv: str | None = None
    """Stored precision of keys and values; None for the one that goes with the weights."""
    tp: int = 1
    """World size of tensor parallelism."""

    @property
    def format(self) -> str:
        """Format of quantized weights, whatever finds their scales, the largest of several; or `none`."""
        return number_formats(self.quant)[0]

    @property
    def precision(self) -> Precision:
        """How the weights of linear layers are stored.

        Raises:
            UnsupportedError: the options contradict each other.
        """
        return precision_of(self.dtype, self.format, self.group)


class Compiler(Protocol):
    """What `compile.py` of a target offers, as module-level functions."""

    def check(self, config: ModelConfig, options: TargetOptions) -> None:
        """Refuse in the first second what the target can't build.

        Raises:
            UnsupportedError: names the option, and what the target supports.
        """
        ...

    def groups(self, quant: str) -> tuple[int, ...]:
        """Give the groups that the target has for a format, 0 for one scale per output."""
        ...

    def kv_geometry(
        self, config: ModelConfig, block_size: int, options: TargetOptions
    ) -> KVGeometry:
        """Say how the target cuts KV memory of this model.

        Raises:
            UnsupportedError: it can't with blocks of this size.
        """
        ...

    def lower(self, graph: QuantizedGraph, kv: KVGeometry) -> LoweredGraph:
        """Rewrite the graph to the target's own operations, in place."""
        ...

    def compile(
        self, graph: LoweredGraph, folder: Path, advance: Callable[[int], None]
    ) -> EngineRecord:
        """Write the engine of rank 0 and its weights under an artifact folder; `advance` hears of bytes written."""
        ...

    def tools(self) -> dict[str, str]:
        """Give the versions of the libraries that write the engine."""
        ...


def load_compiler(name: str) -> Compiler:
    """Import the compiling half of a target."""
    return cast("Compiler", import_half(name, "compile"))
