"""Loads private copies of the serving program, whole or with some source text replaced.

A copy has modules, classes and globals of its own; the program that is imported elsewhere stays as it is.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

PACKAGE = "triton_backend"


@dataclass(frozen=True)
class Patch:
    """One change of source text: `old`, which must occur exactly once in a module, becomes `new`."""

    module: str
    old: str
    new: str

    def apply(self, source: str) -> str:
        count = source.count(self.old)
        assert count == 1, f"{self.old!r} occurs {count} times in {self.module}: renew the patch"
        return source.replace(self.old, self.new)


class Program:
    """The names that a workload uses, out of one copy."""

    def __init__(self, modules: dict[str, ModuleType]) -> None:
        self.Engine: Any = modules[f"{PACKAGE}.engine"].Engine  # type: ignore[attr-defined]
        self.EngineConfig: Any = modules[f"{PACKAGE}.config"].EngineConfig
        self.Request: Any = modules[f"{PACKAGE}.request"].Request
        self.SamplingParams: Any = modules[f"{PACKAGE}.request"].SamplingParams
        self._constraint: Any = modules[f"{PACKAGE}.constraint"]

    def constrain(self, divisor: int, shift: int) -> Any:
        """Make a constraint of the fake mask's language."""
        kind = self._constraint.ConstraintKind.CHOICE
        return self._constraint.Constraint(kind, f"{divisor} {shift}")


def load(patch: Patch | None = None) -> Program:
    """Load a copy."""
    kept = _take_modules()
    finder = _Finder(patch) if patch else None
    if finder:
        sys.meta_path.insert(0, finder)
    try:
        importlib.import_module(f"{PACKAGE}.engine")  # noqa: TID251 - loading anew is the point
    finally:
        if finder:
            sys.meta_path.remove(finder)
        copies = _take_modules()
        sys.modules.update(kept)
    assert finder is None or finder.is_used, (
        f"{patch} is for a module that the engine does not import"
    )
    return Program(copies)


def _take_modules() -> dict[str, ModuleType]:
    """Remove and give all modules of the package."""
    names = [name for name in sys.modules if name.split(".")[0] == PACKAGE]
    return {name: sys.modules.pop(name) for name in names}


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the one module that is patched."""

    def __init__(self, patch: Patch) -> None:
        self.patch = patch
        self.is_used = False

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:  # noqa: ARG002
        if name != f"{PACKAGE}.{self.patch.module}":
            return None
        self.is_used = True
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        assert spec.origin is not None
        loader = _PatchedLoader(name, spec.origin)
        loader.patch = self.patch
        return importlib.util.spec_from_file_location(name, spec.origin, loader=loader)


class _PatchedLoader(importlib.machinery.SourceFileLoader):
    """Compiles patched source; never from or to a cache of bytecode."""

    patch: Patch

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002
        source = self.patch.apply(Path(self.path).read_text())
        return compile(source, self.path, "exec")
