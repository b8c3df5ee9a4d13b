"""The parts of a server: in the wheel, in a container's layout, and what is said when one is missing."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.launcher import installation
from triton_backend.launcher.installation import (
    LIBRARY,
    STUB,
    THIS_PYTHON,
    UTILS,
    find_installation,
    link_backends,
)

PROGRAM = "bin/tritonserver"
BACKEND = "backends/python"


def lay_out(root: Path, *files: str) -> Path:
    """Write empty files below `root`, and give the path of its program."""
    for name in (PROGRAM, *files):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()
    return root / PROGRAM


CONTAINER = (f"{BACKEND}/{LIBRARY}", f"{BACKEND}/{UTILS}", f"{BACKEND}/{STUB}")
WHEEL = (f"{BACKEND}/{LIBRARY}", f"{BACKEND}/{UTILS}", f"python_backend_stubs/{THIS_PYTHON}/{STUB}")


def test_the_wheel_is_found_without_importing_it() -> None:
    found = find_installation()
    assert found.program.name == "tritonserver"
    assert found.stub.parent.name == THIS_PYTHON
    assert "pytriton" not in sys.modules


def test_every_file_that_was_found_exists() -> None:
    found = find_installation()
    assert all(path.is_file() for path in (found.program, *found.backend_files.values()))


def test_a_server_without_wheel_is_refused_with_both_ways_to_get_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"install forerun\[triton-server\].*--tritonserver"):
        find_installation()


def test_a_package_that_is_a_single_file_is_no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = ModuleSpec("pytriton", None)
    monkeypatch.setattr(installation.importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(UserError, match="there is no Triton server"):
        find_installation()


def test_a_container_s_layout_is_found_around_its_program(tmp_path: Path) -> None:
    found = find_installation(lay_out(tmp_path, *CONTAINER))
    assert found.stub == tmp_path / BACKEND / STUB
    assert found.library == tmp_path / BACKEND / LIBRARY


def test_a_stub_of_this_python_wins_over_a_single_one(tmp_path: Path) -> None:
    found = find_installation(lay_out(tmp_path, *CONTAINER, *WHEEL))
    assert found.stub == tmp_path / "python_backend_stubs" / THIS_PYTHON / STUB


def test_a_link_to_the_program_is_followed(tmp_path: Path) -> None:
    link = tmp_path / "tritonserver"
    link.symlink_to(lay_out(tmp_path / "opt", *CONTAINER))
    assert find_installation(link).program == tmp_path / "opt" / PROGRAM


def test_a_program_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no Triton server at .*nowhere"):
        find_installation(tmp_path / "nowhere")


@pytest.mark.parametrize("missing", [LIBRARY, UTILS])
def test_a_server_without_a_python_backend_is_refused(tmp_path: Path, missing: str) -> None:
    files = [name for name in CONTAINER if not name.endswith(missing)]
    with pytest.raises(UserError, match=rf"no Python backend: .*{missing} is missing"):
        find_installation(lay_out(tmp_path, *files))


def test_a_server_with_stubs_of_other_pythons_only_names_them(tmp_path: Path) -> None:
    files = (*WHEEL[:2], f"python_backend_stubs/3.8/{STUB}", f"python_backend_stubs/3.9/{STUB}")
    with pytest.raises(
        UserError, match=rf"no .* stub for Python {THIS_PYTHON} \(it has: 3.8, 3.9\)"
    ):
        find_installation(lay_out(tmp_path, *files))


def test_the_backend_folder_holds_links_to_the_real_files(tmp_path: Path) -> None:
    found = find_installation(lay_out(tmp_path / "opt", *WHEEL))
    directory = link_backends(tmp_path, found)
    links = {path.name: path.resolve() for path in (directory / "python").iterdir()}
    assert links == {LIBRARY: found.library, UTILS: found.utils, STUB: found.stub}
    assert all(path.is_symlink() for path in (directory / "python").iterdir())
