"""A loaded model for the length of a command, with its progress shown."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from builder.artifact.store import open_artifact, read_manifest
from builder.cli.display import Display
from triton_backend.loading import LoadedModel, load_model


@contextlib.contextmanager
def open_session(
    root: Path, *, display: Display, target: str | None = None, threads: int | None = None
) -> Iterator[LoadedModel]:
    """Verify the artifact at `root` and load its engine, which is closed in the end.

    Raises:
        ArtifactError: the artifact is incomplete or altered, or has no engine for `target`.
    """
    size = sum(record.size_bytes for record in read_manifest(root).files.values())
    with display.progress() as progress:
        progress.stage("verify", size)
        artifact = open_artifact(root, progress.advance)
        progress.stage("load", 0)
        model = load_model(artifact, target=target, threads=threads)
    with contextlib.closing(model):
        yield model
