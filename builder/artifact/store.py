"""Artifacts on disk: written under a temporary name and renamed when complete, verified when opened.

<name>/
  artifact.json             the manifest, written last
  engines/<target>/rank<r>.*  compiled engines
  weights/rank<r>.safetensors  weights that engines map
  tokenizer/                tokenizer.json, chat_template.jinja, generation_config.json
  reports/
"""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from builder.artifact import manifest as manifests
from builder.artifact.manifest import FileRecord, Manifest
from builder.errors import ArtifactError, BuildError, UserError

HASH_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, slots=True)
class Artifact:
    """A complete artifact whose files were checked against its manifest."""

    root: Path
    manifest: Manifest

    def path(self, relative: str) -> Path:
        """Give the absolute path of a file of the artifact."""
        return self.root / relative


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
    """Refuse a destination that a build may not write, before any work is done.

    Raises:
        UserError: it exists, or its parent does not.
    """
    if not destination.parent.is_dir():
        raise UserError(
            f"the folder {destination.parent} does not exist; create it or choose another -o"
        )
    if not os.access(destination.parent, os.W_OK):
        raise UserError(f"the folder {destination.parent} is not writable; choose another -o")
    if not destination.exists():
        return
    is_artifact = (destination / manifests.FILE_NAME).is_file()
    if replace_existing and is_artifact:
        return
    if is_artifact:
        raise UserError(f"{destination} already holds an artifact; add --force to replace it")
    raise UserError(f"{destination} exists and is not an artifact; choose another -o")


@contextlib.contextmanager
def staged(destination: Path) -> Iterator[Path]:
    """Give an empty folder beside `destination` that is removed unless `publish` renames it.

    Raises:
        BuildError: the disk is full.
    """
    folder = destination.parent / f".{destination.name}.partial-{os.getpid()}"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        folder.mkdir()
        yield folder
    except OSError as error:
        raise BuildError(
            f"can't write {destination}: {error.strerror or error}; nothing was left behind"
        ) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def publish(folder: Path, destination: Path, manifest: Manifest) -> Artifact:
    """Write the manifest with the hash of every file in `folder`, and rename it to `destination`."""
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
    _swap(folder, destination)
    return Artifact(destination, complete)


def _swap(folder: Path, destination: Path) -> None:
    """Rename `folder` to `destination`; what was there comes back if that fails or is interrupted."""
    old = destination.parent / f".{destination.name}.old-{os.getpid()}"
    try:
        if destination.exists():
            destination.rename(old)
        folder.rename(destination)
    finally:
        if old.exists() and not destination.exists():
            old.rename(destination)
        shutil.rmtree(old, ignore_errors=True)


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
