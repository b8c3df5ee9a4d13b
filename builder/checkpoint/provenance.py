"""Which files a checkpoint was read from. Hashing them for the manifest is the packager's work."""

from dataclasses import dataclass
from pathlib import Path


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
