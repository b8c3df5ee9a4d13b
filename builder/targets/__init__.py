"""Targets: what a model is compiled for. `compile.py` of a target builds, `execute.py` runs.

To add one, write both files in a folder here and a line in TARGETS.
"""

import importlib
from types import ModuleType
from typing import cast

from builder.artifact.store import Artifact
from builder.errors import ArtifactError, UnsupportedError, unknown_name
from builder.targets.executor import Executor

TARGETS = {"cpu": "builder.targets.cpu", "portable": "builder.targets.portable"}
"""Targets by name, and their packages."""

ALIASES: dict[str, tuple[str, str]] = {}
"""Names that stand for another target, and why."""

PLANNED = ("tensorrt", "tensorrt-rtx", "cuda")
"""Targets that are planned and that nothing here implements yet."""


def resolve(name: str) -> str:
    """Give the target that a name stands for.

    Raises:
        UnsupportedError: it is planned, or unknown.
    """
    if name in ALIASES:
        return ALIASES[name][0]
    supported = ", ".join(sorted([*TARGETS, *ALIASES]))
    if name.partition(":")[0] in PLANNED:
        raise UnsupportedError(f"target {name} is not implemented yet; supported: {supported}")
    if name not in TARGETS:
        raise UnsupportedError(unknown_name("target", name, [*TARGETS, *ALIASES]))
    return name


def import_half(name: str, half: str) -> ModuleType:
    """Import `compile` or `execute` of a target."""
    return importlib.import_module(f"{TARGETS[resolve(name)]}.{half}")


def open_executor(
    artifact: Artifact, *, target: str | None = None, threads: int | None = None
) -> Executor:
    """Load the engine that an artifact holds for a target; without a name, its only or first one.

    Raises:
        ArtifactError: the artifact has no engine for the target, or it can't be loaded here.
        UserError: the number of threads is out of range.
    """
    chosen = artifact.manifest.engines[0].target if target is None else resolve(target)
    artifact.engine(chosen)
    if chosen not in TARGETS:
        raise ArtifactError(
            f"{artifact.root} has an engine for {chosen}, which this version can't run; compile the model again"
        )
    module = import_half(chosen, "execute")
    return cast("Executor", module.open_executor(artifact, threads=threads))
