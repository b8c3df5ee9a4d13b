"""Checks before a server starts, of what it would otherwise hang on, or answer wrongly with.

A stub that can't start makes Triton wait for ever, and a stub of old pybind11 under numpy 2 corrupts tensors silently.
"""

import importlib.metadata
import re
import subprocess
from pathlib import Path

from builder.errors import UserError
from triton_backend.launcher.installation import THIS_PYTHON, Installation

LDD_TIMEOUT_S = 60.0
NUMPY_2_MARK = b"NumpyVersion\0"
"""A name that pybind11 looks up since it can tell numpy 2 from numpy 1, so it stands in every binary built with it."""


def check_installation(installation: Installation, environment: dict[str, str]) -> None:
    """Refuse a server that can't serve Forerun's models from this Python.

    Raises:
        UserError: names what is missing or does not fit, and the remedy.
    """
    check_numpy(installation.stub, importlib.metadata.version("numpy"))
    for path in (installation.program, installation.stub):
        check_libraries(path, environment)
    check_stub_python(installation.stub, environment)


def check_numpy(stub: Path, version: str) -> None:
    """Refuse numpy 2 under a stub that predates it.

    Raises:
        UserError: the two do not fit.
    """
    if int(version.partition(".")[0]) >= 2 and NUMPY_2_MARK not in stub.read_bytes():
        raise UserError(
            f"numpy {version} is installed, and this Triton server needs numpy below 2 (with numpy 2 it corrupts"
            " tensors silently); run pip install 'numpy<2', or name a server of 24.12 or later with --tritonserver"
        )


def check_libraries(path: Path, environment: dict[str, str]) -> None:
    """Refuse a program or library whose own libraries are not all found.

    Raises:
        UserError: names those that are missing.
    """
    missing = re.findall(r"^\s*(\S+) => not found", _ldd(path, environment), re.MULTILINE)
    if missing:
        raise UserError(
            f"{path.name} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not"
            " installed; the server would wait for it for ever"
        )


def check_stub_python(stub: Path, environment: dict[str, str]) -> None:
    """Refuse a stub that was built for another Python than this one.

    Raises:
        UserError: names both versions.
    """
    found = re.search(r"libpython(\d+\.\d+)", _ldd(stub, environment))
    if found is not None and found[1] != THIS_PYTHON:
        raise UserError(
            f"the Python backend of this Triton server was built for Python {found[1]}, and Forerun runs on"
            f" {THIS_PYTHON}; install Forerun for Python {found[1]}"
        )


def _ldd(path: Path, environment: dict[str, str]) -> str:
    """List the libraries that `path` would load."""
    try:
        result = subprocess.run(  # noqa: S603 (our own path)
            ["ldd", str(path)],  # noqa: S607 (every glibc system has it, at places of its own)
            env=environment,
            capture_output=True,
            text=True,
            timeout=LDD_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise UserError(
            "there is no ldd on PATH; a Triton server needs Linux with glibc"
        ) from error
    return result.stdout
