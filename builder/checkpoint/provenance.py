"""Which files a checkpoint was read from. Hashing them for the manifest is the packager's work."""

from dataclasses import dataclass
from pathlib import Path

from builder.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file that was read."""

    name: str
    """Relative to the model, such as `model.safetensors`."""
    path: Path
    num_bytes: int
    """When it was opened."""

    @classmethod
    def at(cls, path: Path) -> "SourceFile":
        """Note the file at `path` under its own name."""
        return cls(path.name, path, path.stat().st_size)


@dataclass(frozen=True, slots=True)
class Source:
    """Where a checkpoint came from."""

    kind: str
    """`hf` (a folder), `gguf` (one file) or `hub`."""
    name: str
    """Folder or file name, or `org/name`; never a path, so that a copy elsewhere has the same manifest."""
    files: tuple[SourceFile, ...]
    """Every file that was read, by ascending name."""
    commit: str | None = None
    """Of a hub model, 40 hex digits."""

    @property
    def num_bytes(self) -> int:
        """Bytes of all files."""
        return sum(file.num_bytes for file in self.files)


def note_files(paths: list[Path]) -> tuple[SourceFile, ...]:
    """Note files under their own names, in their order."""
    return tuple(map(SourceFile.at, sorted(paths, key=lambda path: path.name)))


def file_states(source: Source) -> dict[str, tuple[int, int, int]]:
    """Give what changes when a source file is written to: its place, size and time.

    Raises:
        CheckpointError: one is gone.
    """
    states = {}
    for file in source.files:
        try:
            stat = file.path.stat()
        except OSError as error:
            raise CheckpointError(f"can't read {file.path}: {error.strerror or error}") from error
        states[file.name] = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return states


def check_unchanged(source: Source, before: dict[str, tuple[int, int, int]]) -> None:
    """Refuse a source that was written to between its hash and its last weight.

    Raises:
        CheckpointError: names the file.
    """
    now = file_states(source)
    for name, state in before.items():
        if now[name] != state:
            raise CheckpointError(
                f"{name} changed while it was compiled; compile again when nothing writes to it"
            )
