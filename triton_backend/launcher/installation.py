"""Where the parts of a Triton server are on this machine: the program, its Python backend and a stub for this Python.

Two layouts are known: the wheel of nvidia-pytriton, which is only a carrier of the files and is never imported,
and a server as NVIDIA's containers lay it out.
"""

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path

from builder.errors import UserError

STUB = "triton_python_backend_stub"
LIBRARY = "libtriton_python.so"
UTILS = "triton_python_backend_utils.py"
THIS_PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@dataclass(frozen=True, slots=True)
class Installation:
    """The files of a server that we start or link to; all of them exist."""

    program: Path
    library: Path
    utils: Path
    stub: Path

    @property
    def backend_files(self) -> dict[str, Path]:
        """What a folder of the Python backend must hold, by name."""
        return {LIBRARY: self.library, UTILS: self.utils, STUB: self.stub}


def find_installation(program: Path | None = None) -> Installation:
    """Find the server that `program` names, or else the one in the wheel of nvidia-pytriton.

    Raises:
        UserError: there is none, or a part is missing; the message names it.
    """
    return _wheel_installation() if program is None else _installation_of(program)


def _wheel_installation() -> Installation:
    spec = importlib.util.find_spec("pytriton")  # importing it would start its own machinery
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            "there is no Triton server: install forerun[triton-server], or name one with --tritonserver"
        )
    return _installation_of(
        Path(spec.submodule_search_locations[0], "tritonserver", "bin", "tritonserver")
    )


def _installation_of(program: Path) -> Installation:
    """Find the parts around `<root>/bin/tritonserver`; a stub per Python version wins over a single one."""
    if not program.is_file():
        raise UserError(f"there is no Triton server at {program}; name its file tritonserver")
    program = program.resolve()
    root = program.parent.parent
    backend = root / "backends" / "python"
    stubs = (root / "python_backend_stubs" / THIS_PYTHON / STUB, backend / STUB)
    return Installation(
        program=program,
        library=_existing(backend / LIBRARY),
        utils=_existing(backend / UTILS),
        stub=next((stub for stub in stubs if stub.is_file()), None) or _no_stub(root),
    )


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"the Triton server has no Python backend: {path} is missing")
    return path


def _no_stub(root: Path) -> Path:
    versions = sorted(path.name for path in (root / "python_backend_stubs").glob("*"))
    raise UserError(
        f"the Triton server at {root} has no Python backend stub for Python {THIS_PYTHON}"
        f" (it has: {', '.join(versions) or 'none'}); run Forerun with one of these"
    )


def link_backends(folder: Path, installation: Installation) -> Path:
    """Make a backend directory of symbolic links under `folder`, and give its path.

    The wheel keeps the stub away from the backend that starts it. Links, not copies: a stub finds its
    libraries relative to its real file.
    """
    backend = folder / "backends" / "python"
    backend.mkdir(parents=True)
    for name, path in installation.backend_files.items():
        (backend / name).symlink_to(path)
    return backend.parent
