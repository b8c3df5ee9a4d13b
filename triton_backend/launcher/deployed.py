"""Reads a model repository back without a server: what it serves, and what would keep it from being served.

Triton says it too late, and one file that it can't read takes all other models down.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from builder.artifact.gate_report import check_gate
from builder.artifact.store import read_manifest
from builder.errors import ArtifactError, UserError
from triton_backend.front_settings import FrontSettings, read_settings
from triton_backend.launcher.config_file import AGAIN, ConfigFile, read_config
from triton_backend.launcher.names import check_model_name
from triton_backend.model_config import model_config

logger = logging.getLogger(__name__)

MODEL_PY = "1/model.py"
MODEL_PY_TEXT = '''\
"""Written by builder deploy. The front is in the forerun package."""

from triton_backend.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
'''
FIXED = ("name", "backend", "max_batch_size", "model_transaction_policy", "instance_group")
"""Fields that must be as they were written, beside the tensors; others may be added."""


@dataclass(frozen=True, slots=True)
class Front:
    """A model that builder deploy wrote."""

    model: str
    """Its name: that of its folder."""
    settings: FrontSettings


@dataclass(frozen=True, slots=True)
class Repository:
    """What a repository holds."""

    fronts: tuple[Front, ...]
    others: tuple[str, ...]
    """Models that builder deploy did not write; only their configuration was parsed."""
    problems: tuple[str, ...]
    """What keeps models from being served, one line each."""


def read_repository(root: Path) -> Repository:
    """Read and check every model of a repository.

    Raises:
        UserError: there is no folder, or no model in it.
    """
    folders = model_folders(root)
    if not folders:
        raise UserError(
            f"there is no model in a repository at {root}; make one with builder deploy"
        )
    fronts, others, problems = list[Front](), list[str](), list[str]()
    for folder in folders:
        try:
            check_model_name(folder)
            file = read_config(folder)
            front = read_front(file)
        except UserError as error:
            problems.append(str(error))
            continue
        if front is None:
            others.append(folder.name)
        else:
            fronts.append(front)
            problems += problems_of(front, file)
    return Repository(tuple(fronts), tuple(others), tuple(problems))


def model_folders(root: Path) -> list[Path]:
    """Give the folders of models, in order; hidden ones are none, and where there is no repository there is none."""
    paths = sorted(root.iterdir()) if root.is_dir() else []
    return [path for path in paths if path.is_dir() and path.name[0] not in "._"]


def read_front(file: ConfigFile) -> Front | None:
    """Read the front that a configuration stands for; None if builder deploy did not write it.

    Raises:
        UserError: it did, and the parameters were changed since.
    """
    if not has_our_code(file.path.parent) and not {"face", "deployment"} <= set(file.parameters):
        return None
    try:
        return Front(file.path.parent.name, read_settings(file.parameters))
    except UserError as error:
        raise UserError(file.problem("parameters", str(error))) from error


def has_our_code(folder: Path) -> bool:
    """Whether the code of the model in `folder` is what builder deploy writes."""
    model_py = folder / MODEL_PY
    return model_py.is_file() and model_py.read_bytes() == MODEL_PY_TEXT.encode()


def problems_of(front: Front, file: ConfigFile) -> Iterator[str]:
    """Find what keeps a front from being served."""
    if not has_our_code(file.path.parent):
        yield f"{file.path.parent / MODEL_PY} is missing or was changed; {AGAIN}"
    settings = front.settings
    try:
        check_gate(
            settings.artifact,
            read_manifest(settings.artifact),
            allow_missed=settings.allow_missed_gate,
            warn=logger.warning,
        )
    except ArtifactError as error:
        yield file.problem("artifact", str(error))
    try:
        face, parameters = settings.face, file.parameters
        written = model_config(face, model_name=front.model, parameters=parameters)
    except UserError as error:
        yield file.problem("face", str(error))
        return
    for name in FIXED:
        if getattr(file.config, name) != getattr(written, name):
            yield file.problem(name, "is not what builder deploy writes")
    for kind in ("input", "output"):
        yield from _tensor_problems(kind, file, written)


def _tensor_problems(kind: str, file: ConfigFile, written: Any) -> Iterator[str]:
    """Compare the tensors of one kind by name."""
    found = {tensor.name: tensor for tensor in getattr(file.config, kind)}
    wanted = {tensor.name: tensor for tensor in getattr(written, kind)}
    for name in wanted:
        if name not in found:
            yield file.problem(kind, f"the tensor {name} is missing")
    for name, tensor in found.items():
        if name not in wanted:
            yield file.problem(name, f"the face has no such {kind}")
        elif tensor != wanted[name]:
            yield file.problem(name, "is not what builder deploy writes")
