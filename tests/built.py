"""Compile a model for a test, with the progress reports kept for those who want them."""

from dataclasses import dataclass, field
from pathlib import Path

from builder import pipeline
from builder.artifact.store import Artifact
from builder.limits import LimitOptions
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions


@dataclass
class Reports:
    """A Progress that remembers what it heard."""

    stages: list[tuple[str, int]] = field(default_factory=list)
    done: list[int] = field(default_factory=list)

    def stage(self, name: str, total: int) -> None:
        self.stages.append((name, total))
        self.done.append(0)

    def advance(self, amount: int) -> None:
        self.done[-1] += amount


def compile_model(
    model: Path,
    destination: Path,
    *,
    target: str = "cpu",
    quant: str = "none",
    kv: str | None = None,
    dtype: str = "float32",
    group: int | None = None,
    progress: Reports | None = None,
    replace_existing: bool = False,
    allow_fallback: bool = False,
    **limits: int,
) -> Artifact:
    """Compile for one target."""
    options = TargetOptions(dtype=dtype, quant=quant, group=group, kv=kv)
    request = CompileRequest(
        str(model),
        targets=(target,),
        options=options,
        limits=LimitOptions(**limits),
        allow_fallback=allow_fallback,
    )
    plan = pipeline.plan(request)
    return pipeline.build(
        plan, destination, progress=progress or Reports(), replace_existing=replace_existing
    )
