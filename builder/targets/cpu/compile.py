"""Compile for the native CPU engine: a plan of fused operations, and weights packed for its kernels.

The same files serve every instruction set: which kernels run is decided where the engine is opened.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from builder.artifact.config import KVGeometry, KVGroup, ModelConfig
from builder.artifact.manifest import Binding, EngineRecord
from builder.artifact.weights import WeightSpec, write_weights
from builder.errors import UnsupportedError
from builder.graph.graph import LoweredGraph, QuantizedGraph, cache_name
from builder.quant import FORMATS, is_emulated
from builder.quant.plan import BFLOAT16, FLOAT32
from builder.targets.bindings import binding
from builder.targets.checks import require, require_head_dim, require_one_rank
from builder.targets.compiler import TargetOptions
from builder.targets.cpu import native, plan
from builder.targets.cpu.describe import KV, describe
from builder.targets.cpu.lowering import Lowering
from builder.targets.cpu.packing import Packed

NAME = "cpu"
DTYPES = ("float32", "bfloat16")
QUANTS = ("none", *(name for name, rules in FORMATS.items() if NAME in rules.TARGETS))
MAX_HEAD_DIM = 256
RUN = 16
"""Tokens that lie together in a block."""


@dataclass(frozen=True, slots=True)
class LoweredPlan(LoweredGraph):
    """A graph as a plan, and the weights that it names by index."""

    program: plan.Program
    weights: tuple[Packed, ...]


def check(config: ModelConfig, options: TargetOptions) -> None:
    """Refuse what the engine has no kernels for, and a machine that can't try what it built.

    Raises:
        UnsupportedError: names the option, and what the target supports.
    """
    require(NAME, "dtype", options.dtype, DTYPES)
    require(NAME, "quant", options.format, QUANTS)
    if options.kv is not None:
        require(NAME, "--kv", options.kv, tuple(KV))
    require_one_rank(NAME, options.tp)
    require_head_dim(NAME, config, MAX_HEAD_DIM)
    native.library()


def groups(quant: str) -> tuple[int, ...]:
    """Give all groups of a format: each has its kernels."""
    found: tuple[int, ...] = FORMATS[quant].GROUPS
    return found


def kv_geometry(config: ModelConfig, block_size: int, options: TargetOptions) -> KVGeometry:
    """One group of all layers, in the precision that goes with the weights; heads are as wide as the pool holds them.

    Raises:
        UnsupportedError: blocks of this size have no layout.
    """
    if block_size % RUN:
        raise UnsupportedError(
            f"target {NAME} does not support --block-size {block_size}; supported: multiples of {RUN}"
        )
    layers = tuple(range(config.num_layers))
    name = options.precision.name
    dtype = options.kv or (FLOAT32 if name == FLOAT32 or is_emulated(name, NAME) else BFLOAT16)
    width = plan.pool_width(config.head_dim)
    return KVGeometry(block_size, (KVGroup(layers, config.num_kv_heads, width, dtype),))


def lower(graph: QuantizedGraph, kv: KVGeometry) -> LoweredPlan:
    """Turn the graph into a plan.

    Raises:
        UnsupportedError: an operation has no kernel.
    """
    lowering = Lowering(graph, kv)
    program = lowering.program()
    return LoweredPlan(
        graph.model,
        graph.config,
        kv,
        graph.requested,
        lowering.realized,
        program,
        tuple(lowering.weights.all),
    )


def compile(  # noqa: A001 - the verb of the Compiler protocol
    graph: LoweredGraph, folder: Path, advance: Callable[[int], None]
) -> EngineRecord:
    """Write `weights/cpu.rank0.safetensors` and `engines/cpu/rank0.plan`."""
    assert isinstance(graph, LoweredPlan)
    path, weights = Path("engines") / NAME / "rank0.plan", Path("weights") / "cpu.rank0.safetensors"
    for relative in (path, weights):
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
    specs = [WeightSpec(w.name, "U8", (w.num_bytes,), w.read) for w in graph.weights]
    places = write_weights(folder / weights, specs, advance)
    _forget(folder / weights)
    ranges = [
        plan.WeightRange(*places[w.name], w.form, w.group, w.size_out, w.size_in)
        for w in graph.weights
    ]
    size = (folder / weights).stat().st_size
    names = tuple(sorted(name for name in set(graph.realized.values()) if is_emulated(name, NAME)))
    (folder / path).write_bytes(plan.encode(graph.program, ranges, size))
    return EngineRecord(
        target=NAME,
        rank=0,
        path=path.as_posix(),
        weights=weights.as_posix(),
        inputs=(*_step_bindings(graph), _pool_binding(graph.kv)),
        outputs=(binding(graph.model.graph.outputs[0]),),
        requested=graph.requested,
        realized=graph.realized,
        compute=describe(graph.program, graph.weights, names, graph.kv),
        emulated=names,
        fallbacks={},
    )


def tools() -> dict[str, str]:
    """Give the version of the plan's format; no library has a say in its bytes."""
    return {"cpu-plan": str(plan.VERSION)}


def _forget(path: Path) -> None:
    """Let the system drop what it holds of a file, in the small pages of writing: who maps it reads huge ones."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _step_bindings(graph: LoweredPlan) -> list[Binding]:
    """Describe the step tensors; the caches of the layers are one pool here."""
    caches = {cache_name(layer) for layer in range(graph.config.num_layers)}
    return [binding(value) for value in graph.model.graph.inputs if value.name not in caches]


def _pool_binding(kv: KVGeometry) -> Binding:
    (group,) = kv.groups
    shape = ("N", len(group.layers), 2, group.num_kv_heads, kv.block_size, group.head_dim)
    return Binding("kv_pool", group.dtype, shape)
