"""The repository that a server reads: its own, in its private folder, where models can be taken out and put back.

A front is copied, which is two small files; a model of others is a link to its folder. Triton looks for changes
every second: that is how a model is loaded again, without an API for it that others could call.
"""

import os
import py_compile
import shutil
from pathlib import Path

from triton_backend.launcher.config_file import CONFIG
from triton_backend.launcher.deployed import MODEL_PY


class Mirror:
    """A folder of models, and a place aside for those that were taken out."""

    def __init__(self, folder: Path) -> None:
        """Make both, empty, in `folder`."""
        self.root = folder / "models"
        self._aside = folder / "aside"
        self.root.mkdir()
        self._aside.mkdir()

    def add_front(self, source: Path) -> None:
        """Copy a front; Triton sees it when it is complete."""
        copy = self._aside / source.name
        (copy / MODEL_PY).parent.mkdir(parents=True)
        for name in (CONFIG, MODEL_PY):
            shutil.copyfile(source / name, copy / name)
        # Python would write this file when the model is loaded, and Triton would take it for a change.
        py_compile.compile(str(copy / MODEL_PY), doraise=True)
        copy.rename(self.root / source.name)

    def add_other(self, source: Path) -> None:
        """Link a model of others."""
        (self.root / source.name).symlink_to(source.absolute())

    def take_out(self, model: str) -> None:
        """Have a model unloaded. Not while it is being loaded: Triton waits for ever for a stub without its files."""
        (self.root / model).rename(self._aside / model)

    def put_back(self, model: str) -> None:
        """Have a model loaded that was taken out."""
        # A server that did not see it go sees that it is new.
        os.utime((self._aside / model / MODEL_PY).parent)
        (self._aside / model).rename(self.root / model)
