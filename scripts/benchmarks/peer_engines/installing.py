"""Environments of other programs: one folder each, made once, and made again only where its recipe changed."""

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TORCH = ("torch==2.13.0",)
"""Goes first and by itself: a pin that is already met keeps later steps from choosing a CUDA build."""
TORCH_COMPANIONS = ("torchvision", "torchaudio", "torchcodec")
"""Other packages drag in builds for CUDA, which break `import torch` of a CPU build; nothing here needs them."""
STAMP = "recipe"


class PeerError(Exception):
    """A step of another engine failed; the message is the last line that says something."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an environment is made of."""

    steps: tuple[tuple[str, ...], ...]
    """Requirements of each `pip install`, in order."""
    removed: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(repr((self, sys.version)).encode()).hexdigest()


def call(
    command: Sequence[str | Path], *, cwd: Path | None = None, timeout_s: float | None = None
) -> str:
    """Run a step and give what it printed.

    Raises:
        PeerError: it failed, or took too long and was ended.
    """
    texts = [str(part) for part in command]
    try:
        done = subprocess.run(
            texts, cwd=cwd, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{Path(texts[0]).name} took more than {timeout_s:g} s") from error
    if done.returncode:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "no output"
        raise PeerError(f"{Path(texts[0]).name} ended with {done.returncode}: {last[:200]}")
    return done.stdout


def install(folder: Path, recipe: Recipe) -> Path:
    """Make the environment unless it is there, and give its Python.

    Raises:
        PeerError: a package can't be had.
    """
    python, stamp = folder / "bin" / "python", folder / STAMP
    if stamp.exists() and stamp.read_text() == recipe.fingerprint:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    call([sys.executable, "-m", "venv", folder])
    pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    for requirements in recipe.steps:
        call([*pip, "install", *requirements])
    if recipe.removed:
        call([*pip, "uninstall", "--yes", *recipe.removed])
    stamp.write_text(recipe.fingerprint)
    return python
