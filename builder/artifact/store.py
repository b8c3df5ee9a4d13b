"""Artifacts on disk: written under a temporary name and renamed when complete, verified when opened.

<name>/
  artifact.json             the manifest, written last
  engines/<target>/rank<r>.*  compiled engines
  weights/rank<r>.safetensors  weights that engines map
  tokenizer/                tokenizer.json, chat_template.jinja, generation_config.json
  reports/
"""

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from builder.artifact import manifest as manifests
from builder.artifact.manifest import EngineRecord, FileRecord, Manifest
from builder.artifact.staging import Kind, check_place, swap
from builder.errors import ArtifactError

HASH_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Artifact:
    """A complete artifact whose files were checked against its manifest."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Give the absolute path of a file of the artifact."""
        return self.root / relative

    def engine(self, target: str) -> EngineRecord:
        """Give the engine for a target.

        Raises:
            ArtifactError: there is none, or one of several ranks.
        """
        found = [engine for engine in self.manifest.engines if engine.target == target]
        if not found:
            held = ", ".join(dict.fromkeys(engine.target for engine in self.manifest.engines))
            raise ArtifactError(
                f"{self.root} has no engine for {target}, only for {held}; compile the model again with --target"
            )
        if len(found) > 1:
            raise ArtifactError(
                f"{self.root} has an engine of {len(found)} ranks for {target}, this version runs one; "
                "compile the model again"
            )
        return found[0]


def hash_file(path: Path, advance: Callable[[int], None] = lambda _: None) -> FileRecord:
    """Give size and sha256 of a file, reporting the bytes read as it goes."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(HASH_CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
            advance(len(chunk))
    return FileRecord(size_bytes=size, sha256=digest.hexdigest())


def check_free(destination: Path, *, replace_existing: bool) -> None:
    """Refuse a destination that a build may not write, before any work is done and before it is renamed.

    Raises:
        UserError: it exists, or its parent does not, or what it holds is not an artifact and nothing else.
    """
    check_place(destination, ARTIFACT, replace_existing=replace_existing)


def _is_artifact_alone(root: Path) -> bool:
    """Tell whether a folder is an artifact and holds no file that is not of it."""
    try:
        named = {*read_manifest(root).files, manifests.FILE_NAME}
    except ArtifactError:
        return False
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
    return all(name in named or name.startswith("reports/") for name in present)


ARTIFACT = Kind("an artifact", "-o", _is_artifact_alone)


def publish(
    folder: Path, destination: Path, manifest: Manifest, *, replace_existing: bool
) -> Artifact:
    """Write the manifest with the hash of every file in `folder`, take away leave to write, and rename it to `destination`.

    Raises:
        UserError: something that may not be replaced has appeared at the destination.
    """
    files = {
        path.relative_to(folder).as_posix(): hash_file(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    complete = manifests.seal(replace(manifest, files=files))
    path = folder / manifests.FILE_NAME
    with path.open("wb") as stream:
        stream.write(manifests.encode(complete))
        stream.flush()
        os.fsync(stream.fileno())
    for name in (*files, manifests.FILE_NAME):
        _forbid_writing(folder / name)
    check_free(destination, replace_existing=replace_existing)
    swap(folder, destination)
    return Artifact(destination, complete)


def _forbid_writing(path: Path) -> None:
    """Take away leave to write to a file: engines map it, and what is cut under one that runs ends its process."""
    path.chmod(path.stat().st_mode & 0o444)


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of an artifact without checking its files.

    Raises:
        ArtifactError: there is no readable manifest.
    """
    path = root / manifests.FILE_NAME
    if not root.is_dir():
        raise ArtifactError(
            f"there is no artifact at {root}: no such folder; make one with builder compile"
        )
    if not path.is_file():
        raise ArtifactError(
            f"{root} is not an artifact: it has no {manifests.FILE_NAME}; make one with builder compile"
        )
    return manifests.decode(path.read_bytes())


def open_artifact(root: Path, advance: Callable[[int], None] = lambda _: None) -> Artifact:
    """Open an artifact after checking the size and sha256 of every file.

    Raises:
        ArtifactError: a file is missing, altered, or not named by the manifest.
    """
    manifest = read_manifest(root)
    present = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
    for extra in sorted(present - set(manifest.files) - {manifests.FILE_NAME}):
        if not extra.startswith("reports/"):
            raise ArtifactError(
                f"{root} holds {extra}, which its manifest does not name; remove it"
            )
    for name, record in manifest.files.items():
        _check_file(root, name, record, advance)
    return Artifact(root, manifest)


def _check_file(root: Path, name: str, record: FileRecord, advance: Callable[[int], None]) -> None:
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise ArtifactError(
            f"the manifest of {root} names {name}, which lies outside it; compile the model again"
        )
    if not path.is_file():
        raise ArtifactError(f"{root} lacks {name}; compile the model again")
    size = path.stat().st_size
    if size != record.size_bytes:
        raise ArtifactError(
            f"{name} in {root} has {size} bytes, its manifest says {record.size_bytes}; compile the model again"
        )
    if hash_file(path, advance) != record:
        raise ArtifactError(
            f"{name} in {root} was altered: its sha256 differs from the manifest; compile the model again"
        )
