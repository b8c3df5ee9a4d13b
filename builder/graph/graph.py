"""The three lives of a graph: as built, quantized, and lowered to one rank of one target.

They are types of their own so that a step of the compiler can't be skipped: only a quantized graph can be
lowered, and only a lowered one compiled. Weights are lazy: reading a tensor is what writing it out does.
"""

from dataclasses import dataclass

import onnx_ir as ir

from builder.artifact.config import KVGeometry, ModelConfig


@dataclass(frozen=True, slots=True)
class Graph:
    """A model in float precision, with Forerun's own operations as calls of local functions."""

    model: ir.Model
    config: ModelConfig


@dataclass(frozen=True, slots=True)
class QuantizedGraph:
    """A graph whose every layer has the precision that the plan gives it, even if that is float."""

    model: ir.Model
    config: ModelConfig
    requested: str
    """Name of the format, such as `float32` or `int8`."""


@dataclass(frozen=True, slots=True)
class LoweredGraph:
    """One rank's graph in the operations of one target."""

    model: ir.Model
    config: ModelConfig
    kv: KVGeometry
    requested: str
    realized: dict[str, str]
    """Precision found in the lowered graph, by weight name."""


def cache_name(layer: int) -> str:
    """Name the KV cache input of a layer."""
    return f"kv_cache.{layer}"


def cache_out_name(layer: int) -> str:
    """Name the KV cache output of a layer; it aliases the input."""
    return f"kv_cache_out.{layer}"
