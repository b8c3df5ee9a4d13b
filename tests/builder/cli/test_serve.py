"""`builder serve` before anything is started; what it starts is tested in tests/triton/."""

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builder.cli.main import main
from builder.cli.serve import shim_failures_said, shim_settings, urls
from triton_backend.front_settings import FrontSettings
from triton_backend.launcher.addresses import Addresses
from triton_backend.launcher.deployed import Front, Repository
from triton_backend.openai import gate

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


def test_a_repository_for_a_larger_machine_is_valid_and_not_served(
    artifact_folder: Path, tmp_path: Path
) -> None:
    repository = tmp_path / "repository"
    for arguments in (
        ["deploy", artifact_folder, repository, "--threads", 8192],
        ["validate", repository],
    ):
        assert CliRunner().invoke(main, list(map(str, arguments))).exit_code == 0
    result = serve(repository)
    assert "8192 threads were asked for; from 1 to" in result.stderr
    assert result.stderr.endswith("deploy it again with fewer --threads\n")
    assert result.exit_code == 2


def test_a_server_that_is_not_there_is_refused(repository: Path, tmp_path: Path) -> None:
    result = serve(repository, "--tritonserver", tmp_path / "nowhere")
    assert result.stderr.startswith(f"error: there is no Triton server at {tmp_path / 'nowhere'}")
    assert result.exit_code == 2


def test_a_port_out_of_range_is_a_usage_error(repository: Path) -> None:
    result = serve(repository, "--http-port", 65536)
    assert "--http-port" in result.stderr
    assert result.exit_code == 2


@pytest.mark.parametrize("option", ["--ready-timeout", "--drain-timeout"])
@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e12", "-1", "x"])
def test_seconds_are_a_number_up_to_a_day(repository: Path, option: str, value: str) -> None:
    result = serve(repository, f"{option}={value}")
    assert result.exit_code == 2
    assert option in result.stderr


@pytest.mark.parametrize("host", ["", "::1", "300.1.1.1"])
def test_a_host_that_triton_can_t_listen_on_is_refused(repository: Path, host: str) -> None:
    result = serve(repository, f"--host={host}")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: --host ")


def test_a_repository_whose_path_is_not_utf_8_is_named(tmp_path: Path) -> None:
    result = serve(tmp_path / "\udcff")
    assert result.exit_code == 2
    assert "there is no model in a repository at" in result.stderr


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


def test_what_fails_in_the_shim_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with shim_failures_said():
        logging.getLogger(gate.__name__).error("unforeseen %s", "KeyError")
    logging.getLogger(gate.__name__).error("later")
    assert capsys.readouterr().err == "the OpenAI API: unforeseen KeyError\n"


def test_every_service_has_a_url() -> None:
    assert urls(ADDRESSES, "127.0.0.1:4") == [
        ("openai", "http://127.0.0.1:4/v1"),
        ("http", "http://127.0.0.1:1"),
        ("grpc", "127.0.0.1:2"),
        ("metrics", "http://127.0.0.1:3/metrics"),
    ]
