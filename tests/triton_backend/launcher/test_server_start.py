"""A real tritonserver that does not start: its reason is told, and nothing is left behind."""

import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import ServerError, UserError
from tests.triton_backend.launcher.trivial import WAIT_S, trivial_plan, trivial_repository
from triton_backend.launcher import family
from triton_backend.launcher.server import LaunchPlan, running_server


def test_a_model_that_refuses_to_load_ends_the_server_with_its_reason(tmp_path: Path) -> None:
    repository = trivial_repository(tmp_path)
    (repository / "trivial" / "refuse").touch()
    with running_server(trivial_plan(repository)) as server:
        with pytest.raises(ServerError, match="Triton ended with exit code 1") as failure:
            server.wait_ready(WAIT_S)
        (tail,) = failure.value.__notes__
    assert "this model refuses to load" in tail
    assert "+----" not in tail


def test_a_stub_that_can_t_start_is_given_up_after_the_deadline(plan: LaunchPlan) -> None:
    """What the checks before the start did not see; Triton itself would wait for ever."""
    quiet = replace(plan.installation, stub=Path("/bin/true"))
    late = pytest.raises(ServerError, match=r"Triton was not ready after 3 s")
    with running_server(replace(plan, installation=quiet)) as server, late:
        server.wait_ready(3)
    assert family.members(server.mark) == []


def test_a_stub_without_its_libraries_is_refused_before_the_start(
    plan: LaunchPlan, tmp_path: Path
) -> None:
    copied = tmp_path / plan.installation.stub.name
    copied.write_bytes(plan.installation.stub.read_bytes())
    broken = replace(plan, installation=replace(plan.installation, stub=copied))
    with pytest.raises(UserError, match=r"needs libcudart.*not installed"), running_server(broken):
        pytest.fail("it was started")


def test_a_port_that_was_taken_meanwhile_ends_the_server_with_its_reason(
    plan: LaunchPlan,
) -> None:
    ended = pytest.raises(ServerError, match="exit code 1")
    other = socket.create_server((plan.addresses.host, plan.addresses.grpc_port))
    with other, running_server(plan) as server, ended as failure:
        server.wait_ready(WAIT_S)
    assert "already in use" in failure.value.__notes__[0]


def test_a_private_folder_that_a_shell_would_misread_is_refused(
    plan: LaunchPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton would wait for ever for a stub in it."""
    (tmp_path / "a b").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "a b"))
    with pytest.raises(UserError, match="set TMPDIR to another folder"), running_server(plan):
        pytest.fail("it was started")
    assert list((tmp_path / "a b").iterdir()) == []
