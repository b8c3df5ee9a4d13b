"""`builder deploy` and `builder validate`: what they print, and how they refuse."""

import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builder.cli.main import main
from triton_backend.config import EngineConfig
from triton_backend.launcher import deploy
from triton_backend.launcher.deployed import read_repository


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


@pytest.fixture
def repository(artifact_folder: Path, tmp_path: Path) -> Path:
    """Deploy an artifact that nobody will run."""
    path = tmp_path / "repository"
    assert run("deploy", artifact_folder, path).exit_code == 0
    return path


def test_deploy_says_where_and_under_which_names(artifact_folder: Path, tmp_path: Path) -> None:
    result = run("deploy", artifact_folder, tmp_path / "repository")
    assert result.stdout == f"{tmp_path / 'repository'}: artifact and vllm_model\n"
    assert result.stderr == ""


def test_the_default_name_is_that_of_the_artifact(repository: Path) -> None:
    assert sorted(path.name for path in repository.iterdir()) == ["artifact", "vllm_model"]


def test_names_and_threads_are_options(artifact_folder: Path, tmp_path: Path) -> None:
    names = ["--name", "a", "--vllm-name", "b", "--threads", 3]
    result = run("deploy", artifact_folder, tmp_path / "repository", *names)
    assert result.stdout.endswith(": a and b\n")
    assert '"3"' in (tmp_path / "repository" / "a" / "config.pbtxt").read_text()


def test_every_setting_of_the_engine_is_an_option(artifact_folder: Path, tmp_path: Path) -> None:
    digest = "ab" * 32
    options = [
        *("--policy", "fair", "--max-waiting", 7, "--max-waiting-tokens", 900),
        *("--max-chunk-tokens", 64, "--no-prefix-reuse", "--cache-ttl", 1.5),
        *("--common-prefix", f"3:{digest}", "--common-prefix", f"5:{digest}"),
        *("--speculate", "--max-draft-tokens", 2),
    ]
    assert run("deploy", artifact_folder, tmp_path / "repository", *options).exit_code == 0
    for front in read_repository(tmp_path / "repository").fronts:
        assert front.settings.engine == EngineConfig(
            policy="fair",
            max_waiting=7,
            max_waiting_tokens=900,
            max_chunk_tokens=64,
            prefix_reuse=False,
            cache_ttl_s=1.5,
            common_prefixes=((3, digest), (5, digest)),
            speculation=True,
            max_draft_tokens=2,
        )


def test_a_common_prefix_of_another_form_is_refused(artifact_folder: Path, tmp_path: Path) -> None:
    result = run("deploy", artifact_folder, tmp_path / "repository", "--common-prefix", "3:ab")
    assert result.stderr.startswith("error: a common prefix must be a number of tokens, a colon")
    assert result.exit_code == 2


def test_what_was_deployed_is_valid(repository: Path, artifact_folder: Path) -> None:
    result = run("validate", repository)
    assert result.stdout == (
        f"artifact: face forerun of deployment artifact, {artifact_folder}\n"
        f"vllm_model: face vllm of deployment artifact, {artifact_folder}\n"
    )
    assert result.exit_code == 0


def test_a_second_deployment_is_told_how_to_go_on(repository: Path, artifact_folder: Path) -> None:
    result = run("deploy", artifact_folder, repository, "--name", "second")
    assert result.stderr == (
        f"error: the model vllm_model in {repository} belongs to the deployment artifact;"
        " choose another --vllm-name\n"
    )
    assert result.exit_code == 2


def test_force_replaces_a_deployment(repository: Path, artifact_folder: Path) -> None:
    assert run("deploy", artifact_folder, repository).exit_code == 2
    assert run("deploy", artifact_folder, repository, "--force").exit_code == 0


def test_what_is_no_artifact_is_refused(tmp_path: Path) -> None:
    result = run("deploy", tmp_path, tmp_path / "repository")
    assert result.stderr.startswith(f"error: {tmp_path} is not an artifact")
    assert result.exit_code == 2


def test_every_problem_of_a_repository_is_a_line(repository: Path) -> None:
    (repository / "artifact" / "config.pbtxt").write_text('name: "artifact"\nmax_batch_size: $n\n')
    (repository / "vllm_model" / "1" / "model.py").unlink()
    result = run("validate", repository)
    assert result.stdout == ""
    again = "run builder deploy --force again"
    assert result.stderr.splitlines() == [
        f"error: {repository}/artifact/config.pbtxt:2: max_batch_size: Couldn't parse integer: $; {again}",
        f"error: {repository}/vllm_model/1/model.py is missing or was changed; {again}",
    ]
    assert result.exit_code == 2


def test_what_a_repository_holds_of_others_is_said(repository: Path) -> None:
    (repository / "other").mkdir()
    (repository / "other" / "config.pbtxt").write_text('name: "other"')
    assert run("validate", repository).stdout.endswith("other: not written by builder deploy\n")


def test_a_path_that_is_not_utf_8_is_said_in_escapes(artifact_folder: Path, tmp_path: Path) -> None:
    repository = tmp_path / "\udcff"
    result = run("deploy", artifact_folder, repository)
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path}/\\udcff: artifact and vllm_model\n"
    assert run("validate", repository).exit_code == 0


def test_a_stop_signal_lets_deploy_clean_up(
    artifact_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(deploy, "_write_model", stopped)
    result = run("deploy", artifact_folder, tmp_path / "repository")
    assert result.stderr == "error: interrupted\n"
    assert result.exit_code == 1
    assert list((tmp_path / "repository").iterdir()) == []
