"""Export artifacts for a test, and ask engines for logits."""

from pathlib import Path
from typing import Any

from builder.artifact.store import Artifact, open_artifact
from builder.export.folder import plan_export, write_export
from builder.targets import open_executor
from tests.paged_runner import PagedRunner

TOKENS = [1, 200, 7, 65, 65, 3, 250, 10, 99, 0, 42]


def export(artifact: Artifact, folder: Path, target: str | None = None, **options: bool) -> Path:
    plan = plan_export(open_artifact(artifact.root), target)
    write_export(plan, folder, advance=lambda _: None, **options)
    return folder


def logits(artifact: Artifact, target: str | None = None) -> Any:
    executor = open_executor(artifact, target=target)
    try:
        return PagedRunner(executor).whole(TOKENS)
    finally:
        executor.close()
