"""Architectures: one small file each, found by the `model_type` of config.json.

To add one, write `read_config`, `write_config` and `build` in a file of this folder and a line in ARCHS.
"""

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np

from builder.archs.blocks import Blocks, Weights
from builder.archs.config_reader import ConfigReader
from builder.artifact.config import ModelConfig
from builder.checkpoint.tensors import Tensor
from builder.errors import CheckpointError, UnsupportedError, unknown_name
from builder.graph.graph import Graph

ARCHS = {"llama": "builder.archs.llama"}
"""`model_type` to module."""


class Architecture(Protocol):
    """What a file of this folder offers."""

    def read_config(self, reader: ConfigReader) -> ModelConfig:
        """Read config.json through a reader that notices fields nobody read."""
        ...

    def write_config(self, config: ModelConfig) -> dict[str, Any]:
        """Give the fields of a config.json that `read_config` makes the same of."""
        ...

    def build(self, blocks: Blocks) -> Graph:
        """Build the graph."""
        ...


def read_config(raw: Mapping[str, Any]) -> ModelConfig:
    """Read a model's config by the rules of its architecture.

    Raises:
        UnsupportedError: the architecture or a field is not implemented.
        CheckpointError: a field is missing or contradicts another.
    """
    reader = ConfigReader(raw)
    name = reader.get("model_type")
    if not isinstance(name, str):
        raise CheckpointError("config.json lacks model_type, the name of the architecture")
    if name not in ARCHS:
        raise UnsupportedError(unknown_name("architecture", name, ARCHS))
    config = _load(name).read_config(reader)
    reader.finish()
    return config


def build_graph(config: ModelConfig, weights: Weights, max_seq_len: int) -> Graph:
    """Build the graph of a model, taking every tensor that it needs from `weights`.

    Raises:
        CheckpointError: a tensor is missing, has another shape, or is left over.
    """
    graph = _load(config.arch).build(Blocks(config, weights, max_seq_len))
    weights.finish()
    return graph


def write_config(config: ModelConfig) -> dict[str, Any]:
    """Give the fields of a config.json that `read_config` makes the same of.

    Raises:
        UnsupportedError: the architecture is unknown here, or a setting has no field.
    """
    if config.arch not in ARCHS:
        raise UnsupportedError(unknown_name("architecture", config.arch, ARCHS))
    return _load(config.arch).write_config(config)


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Give the tensors that a checkpoint of a model has, by Hugging Face name, with their shapes."""
    shapes = _Shapes()
    build_graph(config, shapes, max_seq_len=1)
    return shapes.found


class _Shapes:
    """Weights without numbers, which remember what was asked for."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[int, ...]] = {}

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        self.found[name] = shape
        return Tensor(name, shape, "nothing", 0, lambda: np.zeros(shape, np.float32))

    def finish(self) -> None:
        """Nothing is left over."""


def _load(name: str) -> Architecture:
    return cast("Architecture", importlib.import_module(ARCHS[name]))
