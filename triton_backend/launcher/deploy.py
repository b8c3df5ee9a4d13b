"""Writes the models of a deployment into a model repository: complete, or not at all.

    <repository>/<model>/config.pbtxt     from the table of a face, with the deployment in its parameters
    <repository>/<model>/1/model.py       imports the front

Each face of a deployment is a Triton model of its own.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from builder.artifact.store import read_manifest
from builder.errors import UserError
from triton_backend.config import EngineConfig
from triton_backend.engine_options import written_options
from triton_backend.front_settings import DEPLOYMENT
from triton_backend.launcher.config_file import CONFIG, format_config, read_config
from triton_backend.launcher.deployed import (
    MODEL_PY,
    MODEL_PY_TEXT,
    has_our_code,
    model_folders,
    read_front,
)
from triton_backend.model_config import model_config


@dataclass(frozen=True, slots=True)
class Deployment:
    """An artifact, the models that it is served as, and how its one engine runs."""

    name: str
    """Of the deployment, and of its model with the `forerun` face."""
    vllm_name: str
    """Of its model with the `vllm` face."""
    artifact: Path
    threads: int | None = None
    """Threads of the engine; None lets it take every core it may use."""
    engine: EngineConfig = field(default_factory=EngineConfig)
    allow_missed_gate: bool = False
    """Serve the artifact even if it missed its quality gate."""

    @property
    def faces(self) -> Mapping[str, str]:
        """Model -> face."""
        return {self.name: "forerun", self.vllm_name: "vllm"}

    def parameters(self, face: str) -> Mapping[str, str]:
        """Give what the front of a face is told."""
        threads = {} if self.threads is None else {"threads": str(self.threads)}
        artifact = str(self.artifact.resolve())
        engine = written_options(self.engine)
        gate = {"allow_missed_gate": "true"} if self.allow_missed_gate else {}
        named = {"face": face, "deployment": self.name, "artifact": artifact}
        return {**named, **threads, **gate, **engine}


UNKNOWN = ""
"""Owner of a model that builder deploy wrote, and whose configuration can't be read any more."""


def deploy(repository: Path, deployment: Deployment, *, replace_existing: bool) -> None:
    """Write a model per face; with `replace_existing`, in place of all that the deployment had before.

    Raises:
        UserError: the artifact can't be read or its path is not UTF-8, or a name is taken or can't name a model.
    """
    read_manifest(deployment.artifact)
    _check_names(deployment)
    _check_path(deployment.artifact)
    if not repository.parent.is_dir():
        raise UserError(f"the folder {repository.parent} does not exist; create it first")
    replaced = _replaced(repository, deployment, replace_existing=replace_existing)
    repository.mkdir(exist_ok=True)
    staging = repository / f".deploy-{os.getpid()}"
    try:
        for model, face in deployment.faces.items():
            _write_model(staging / "new" / model, face, deployment)
        (staging / "old").mkdir()
        _exchange(repository, staging, old=replaced, new=deployment.faces)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _check_names(deployment: Deployment) -> None:
    for option, name in (("--name", deployment.name), ("--vllm-name", deployment.vllm_name)):
        if not DEPLOYMENT.fullmatch(name):
            raise UserError(
                f"{option} must be 1 to 128 letters, digits, '.', '_' and '-', beginning with a letter or a"
                f" digit; got {name[:200]!r}"
            )
    if deployment.name == deployment.vllm_name:
        raise UserError(f"--name and --vllm-name are both {deployment.name}; choose two names")


def _check_path(artifact: Path) -> None:
    path = str(artifact.resolve())
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UserError(f"the path of the artifact {path} is not UTF-8; rename it") from error


def _replaced(repository: Path, deployment: Deployment, *, replace_existing: bool) -> list[str]:
    """Give the models that the deployment has in the repository now.

    Raises:
        UserError: one of its names belongs to something else, or the models may not be replaced.
    """
    owners = {folder.name: _owner(folder) for folder in model_folders(repository)}
    for model in deployment.faces:
        owner = owners.get(model, deployment.name)
        if owner is None:
            raise UserError(
                f"{repository / model} exists, and builder deploy did not write it; choose another name"
            )
        if owner not in (deployment.name, UNKNOWN):
            option = "--name" if model == deployment.name else "--vllm-name"
            raise UserError(
                f"the model {model} in {repository} belongs to the deployment {owner}; choose another {option}"
            )
    own = [
        model
        for model, owner in owners.items()
        if owner == deployment.name or (owner == UNKNOWN and model in deployment.faces)
    ]
    if own and not replace_existing:
        raise UserError(
            f"{repository} has a deployment {deployment.name} already; add --force to replace it"
        )
    return own


def _owner(folder: Path) -> str | None:
    """Name the deployment that a model belongs to; None if builder deploy did not write it."""
    try:
        front = read_front(read_config(folder))
    except UserError:
        return UNKNOWN if has_our_code(folder) else None
    return None if front is None else front.settings.deployment


def _write_model(folder: Path, face: str, deployment: Deployment) -> None:
    (folder / MODEL_PY).parent.mkdir(parents=True)
    (folder / MODEL_PY).write_text(MODEL_PY_TEXT, "utf-8")
    parameters = deployment.parameters(face)
    config = model_config(face, model_name=folder.name, parameters=parameters)
    (folder / CONFIG).write_text(format_config(config), "utf-8")


def _exchange(repository: Path, staging: Path, *, old: Iterable[str], new: Iterable[str]) -> None:
    """Move the old models out and the new ones in; where one can't be moved, all go back."""
    with contextlib.ExitStack() as undo:
        moves = [(repository / model, staging / "old" / model) for model in old]
        moves += [(staging / "new" / model, repository / model) for model in new]
        for source, destination in moves:
            source.rename(destination)
            undo.callback(destination.rename, source)
        undo.pop_all()
