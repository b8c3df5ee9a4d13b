"""What would hang a server, or corrupt its tensors, is refused before it starts."""

import importlib.metadata
import shutil
import sysconfig
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend.launcher import preflight
from triton_backend.launcher.family import server_environment
from triton_backend.launcher.installation import THIS_PYTHON, Installation, find_installation
from triton_backend.launcher.preflight import check_installation, check_numpy

ENVIRONMENT = server_environment({"PATH": "/usr/bin:/bin"}, mark="none")


@pytest.fixture
def installation() -> Installation:
    return find_installation()


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch):
    """Let ldd give a text for every file."""

    def set_text(text: str) -> None:
        monkeypatch.setattr(preflight, "_ldd", lambda *_: text)

    return set_text


def test_the_installed_server_passes(installation: Installation) -> None:
    check_installation(installation, ENVIRONMENT)


def test_the_stub_takes_the_library_of_the_python_that_runs(installation: Installation) -> None:
    text = preflight._ldd(installation.stub, ENVIRONMENT)
    library = Path(sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    assert f"=> {library} " in text


def test_a_missing_library_is_refused_by_name(installation: Installation, says) -> None:
    says("\tlibpython3.11.so.1.0 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x1)\n")
    with pytest.raises(UserError) as refusal:
        check_installation(installation, ENVIRONMENT)
    assert str(refusal.value) == (
        "tritonserver needs libpython3.11.so.1.0, which is not installed;"
        " the server would wait for it for ever"
    )


def test_several_missing_libraries_are_named_together(installation: Installation, says) -> None:
    says("\tliba.so => not found\n\tlibb.so.2 => not found\n")
    with pytest.raises(UserError, match=r"needs liba\.so, libb\.so\.2, which are not installed"):
        check_installation(installation, ENVIRONMENT)


def test_a_stub_of_another_python_is_refused_with_both_versions(
    installation: Installation, says
) -> None:
    says("\tlibpython3.99.so.1.0 => /lib/libpython3.99.so.1.0 (0x1)\n")
    with pytest.raises(UserError, match=rf"for Python 3\.99, and Forerun runs on {THIS_PYTHON}"):
        check_installation(installation, ENVIRONMENT)


def test_a_stub_that_was_copied_away_from_its_libraries_is_refused(
    installation: Installation, tmp_path: Path
) -> None:
    """It finds them relative to its own place; this is what really is missing on a real machine."""
    copied = replace(installation, stub=Path(shutil.copy(installation.stub, tmp_path)))
    with pytest.raises(
        UserError, match=r"triton_python_backend_stub needs libcudart.* not installed"
    ):
        check_installation(copied, ENVIRONMENT)


@pytest.mark.parametrize("version", ["2.0.0", "2.4.1", "10.0"])
def test_numpy_2_under_an_old_stub_is_refused_with_the_remedies(
    version: str, installation: Installation
) -> None:
    with pytest.raises(UserError) as refusal:
        check_numpy(installation.stub, version)
    assert str(refusal.value) == (
        f"numpy {version} is installed, and this Triton server needs numpy below 2 (with numpy 2 it corrupts"
        " tensors silently); run pip install 'numpy<2', or name a server of 24.12 or later with --tritonserver"
    )


def test_numpy_1_is_served_by_the_old_stub(installation: Installation) -> None:
    check_numpy(installation.stub, "1.26.4")


def test_numpy_2_is_served_by_a_stub_that_can_tell_it_apart(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.write_bytes(b"\x7fELF...\0numpy.lib\0NumpyVersion\0...")
    check_numpy(stub, "2.4.1")


def test_wrong_numpy_is_found_before_any_program_runs(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"numpy": "2.1.0"}[name])
    nowhere = replace(installation, program=Path("/nowhere"))
    with pytest.raises(UserError, match=r"numpy 2\.1\.0 is installed"):
        check_installation(nowhere, ENVIRONMENT)


def test_a_system_without_ldd_is_refused(installation: Installation) -> None:
    with pytest.raises(UserError, match="there is no ldd on PATH"):
        check_installation(installation, {"PATH": "/nowhere"})
