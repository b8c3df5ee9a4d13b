"""`builder serve` before anything is started; what it starts is tested in tests/triton/."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builder.cli.main import main
from builder.cli.serve import read_keys, shim_settings, urls
from builder.errors import UserError
from triton_backend.front_settings import FrontSettings
from triton_backend.launcher.addresses import Addresses
from triton_backend.launcher.deployed import Front, Repository

ADDRESSES = Addresses("127.0.0.1", 1, 2, 3)
ANY_PORTS = [f"--{service}-port=0" for service in ("openai", "http", "grpc", "metrics")]


def serve(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["serve", *ANY_PORTS, *map(str, arguments)])


@pytest.fixture
def repository(artifact_folder: Path, tmp_path: Path) -> Path:
    arguments = ["deploy", str(artifact_folder), str(tmp_path / "repository")]
    assert CliRunner().invoke(main, arguments).exit_code == 0
    return tmp_path / "repository"


def test_a_repository_that_is_not_there_is_refused(tmp_path: Path) -> None:
    result = serve(tmp_path / "nowhere")
    assert result.stderr.startswith("error: there is no model in a repository at ")
    assert result.exit_code == 2


def test_a_repository_with_a_problem_is_refused(repository: Path) -> None:
    (repository / "vllm_model" / "config.pbtxt").write_text("max_batch_size: $n")
    result = serve(repository)
    assert result.stderr.startswith(
        f"error: {repository}/vllm_model/config.pbtxt:1: max_batch_size: "
    )
    assert result.exit_code == 2


def test_a_server_that_is_not_there_is_refused(repository: Path, tmp_path: Path) -> None:
    result = serve(repository, "--tritonserver", tmp_path / "nowhere")
    assert result.stderr.startswith(f"error: there is no Triton server at {tmp_path / 'nowhere'}")
    assert result.exit_code == 2


def test_a_port_out_of_range_is_a_usage_error(repository: Path) -> None:
    result = serve(repository, "--http-port", 65536)
    assert "--http-port" in result.stderr
    assert result.exit_code == 2


def test_keys_are_lines(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("  one \n\ntwo\n")
    assert read_keys(tmp_path / "keys") == ("one", "two")


def test_without_a_file_no_key_is_needed() -> None:
    assert read_keys(None) == ()


@pytest.mark.parametrize("text", ["", "\n  \n"])
def test_a_file_without_a_key_is_refused(tmp_path: Path, text: str) -> None:
    """It would leave open what it was given to close."""
    (tmp_path / "keys").write_text(text)
    with pytest.raises(UserError, match="holds no key"):
        read_keys(tmp_path / "keys")


def test_a_file_of_keys_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no file of keys at"):
        read_keys(tmp_path / "nowhere")


def test_the_shim_serves_the_models_with_our_own_face() -> None:
    fronts = tuple(
        Front(f"{face}_{name}", FrontSettings(face, name, Path("/artifacts", name)))
        for name in ("a", "b")
        for face in ("forerun", "vllm")
    )
    settings = shim_settings(Repository(fronts, (), ()), ADDRESSES, ("key",), secret=b"s" * 32)
    assert [(model.name, model.artifact) for model in settings.models] == [
        ("forerun_a", Path("/artifacts/a")),
        ("forerun_b", Path("/artifacts/b")),
    ]
    assert settings.grpc_address == "127.0.0.1:2"
    assert settings.api_keys == ("key",)
    assert settings.secret == b"s" * 32


def test_every_service_has_a_url() -> None:
    assert urls(ADDRESSES, "127.0.0.1:4") == [
        ("openai", "http://127.0.0.1:4/v1"),
        ("http", "http://127.0.0.1:1"),
        ("grpc", "127.0.0.1:2"),
        ("metrics", "http://127.0.0.1:3/metrics"),
    ]
