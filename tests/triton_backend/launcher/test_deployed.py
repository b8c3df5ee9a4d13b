"""A repository is read back, and whatever would keep it from being served is found without a server."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import UserError
from tests.triton_backend.gated import write_missed_report
from triton_backend.launcher.deploy import Deployment, deploy
from triton_backend.launcher.deployed import MODEL_PY, read_repository

AGAIN = "run builder deploy --force again"


@pytest.fixture
def repository(tmp_path: Path, deployment: Deployment) -> Path:
    deploy(tmp_path / "repository", deployment, replace_existing=False)
    return tmp_path / "repository"


def change(repository: Path, right: str, wrong: str, *, model: str = "tiny") -> str:
    """Replace text in a configuration; give the problems of the repository as one text."""
    path = repository / model / "config.pbtxt"
    text = path.read_text()
    assert right in text
    path.write_text(text.replace(right, wrong))
    return "\n".join(read_repository(repository).problems).replace(f"{path}:", "")


def test_what_was_deployed_is_read_back(repository: Path, deployment: Deployment) -> None:
    read = read_repository(repository)
    assert read.problems == ()
    assert [(front.model, front.settings.face) for front in read.fronts] == [
        ("tiny", "forerun"),
        ("vllm_model", "vllm"),
    ]
    assert {front.settings.artifact for front in read.fronts} == {deployment.artifact}


def test_models_of_others_are_told_apart(repository: Path) -> None:
    (repository / "other").mkdir()
    (repository / "other" / "config.pbtxt").write_text('name: "other" backend: "python"')
    read = read_repository(repository)
    assert read.others == ("other",)
    assert [front.model for front in read.fronts] == ["tiny", "vllm_model"]
    assert read.problems == ()


def test_a_model_of_others_that_can_t_be_parsed_is_a_problem(repository: Path) -> None:
    (repository / "other").mkdir()
    (repository / "other" / "config.pbtxt").write_text("max_batch_size: $x")
    assert len(read_repository(repository).problems) == 1


def test_files_and_hidden_folders_are_no_models(repository: Path) -> None:
    (repository / "README.md").touch()
    (repository / ".git").mkdir()
    (repository / "__pycache__").mkdir()
    read = read_repository(repository)
    assert len(read.fronts) == 2
    assert read.others == read.problems == ()


@pytest.mark.parametrize("make", [Path.exists, Path.mkdir, Path.touch])
def test_a_repository_without_a_model_is_refused(tmp_path: Path, make) -> None:
    """Nothing there, an empty folder, a file."""
    make(tmp_path / "empty")
    with pytest.raises(UserError, match=r"there is no model in a repository at .*builder deploy"):
        read_repository(tmp_path / "empty")


def test_one_bad_file_does_not_hide_the_other_models(repository: Path) -> None:
    (repository / "tiny" / "config.pbtxt").write_text("max_batch_size: $n")
    read = read_repository(repository)
    assert [front.model for front in read.fronts] == ["vllm_model"]
    assert len(read.problems) == 1


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ('name: "tiny"', 'name: "huge"', "1: name: is not what builder deploy writes"),
        ("decoupled: true", "decoupled: false", "model_transaction_policy: is not what"),
        ("count: 1", "count: 2", "instance_group: is not what builder deploy writes"),
        (
            'backend: "python"',
            'backend: "onnxruntime"',
            "backend: is not what builder deploy writes",
        ),
        ('name: "max_tokens"', 'name: "max_token"', "input: the tensor max_tokens is missing"),
        ('name: "max_tokens"', 'name: "max_token"', "max_token: the face has no such input"),
        ('"finish_reason"', '"reason"', "output: the tensor finish_reason is missing"),
        ("TYPE_INT64", "TYPE_INT32", "seed: is not what builder deploy writes"),
        ('"forerun"', '"other"', "face: unknown face 'other'"),
        ('"tiny"\n  }', '"a/b"\n  }', "parameters: the parameter deployment must be"),
        (
            'key: "artifact"',
            'key: "artefact"',
            "parameters: config.pbtxt lacks the parameter artifact",
        ),
    ],
)
def test_a_change_by_hand_is_named(repository: Path, right: str, wrong: str, told: str) -> None:
    problems = change(repository, right, wrong)
    assert told in problems
    assert problems.endswith(AGAIN)


def test_an_artifact_that_was_moved_is_named_at_its_line(
    repository: Path, deployment: Deployment
) -> None:
    told = change(repository, str(deployment.artifact), "/nowhere")
    line = (repository / "tiny" / "config.pbtxt").read_text().splitlines()
    number = next(i for i, text in enumerate(line, 1) if 'key: "artifact"' in text)
    assert told.startswith(f"{number}: artifact: there is no artifact at /nowhere")


def test_an_artifact_that_missed_its_gate_is_a_problem_unless_it_is_allowed(
    repository: Path, deployment: Deployment, tmp_path: Path
) -> None:
    copy = shutil.copytree(deployment.artifact, tmp_path / "copy")
    write_missed_report(copy)
    missed = replace(deployment, artifact=copy)
    deploy(repository, missed, replace_existing=True)
    problems = read_repository(repository).problems
    assert len(problems) == 2
    assert f"artifact: {copy} missed its quality gate: kl_mean 9, at most 1" in problems[0]
    deploy(repository, replace(missed, allow_missed_gate=True), replace_existing=True)
    read = read_repository(repository)
    assert read.problems == ()
    assert all(front.settings.allow_missed_gate for front in read.fronts)


def test_code_that_is_missing_or_changed_is_named(repository: Path) -> None:
    (repository / "tiny" / MODEL_PY).unlink()
    (repository / "vllm_model" / MODEL_PY).write_text("import os")
    assert read_repository(repository).problems == tuple(
        f"{repository / model / MODEL_PY} is missing or was changed; {AGAIN}"
        for model in ("tiny", "vllm_model")
    )


def test_our_model_without_its_parameters_is_no_one_else_s(repository: Path) -> None:
    path = repository / "tiny" / "config.pbtxt"
    path.write_text('name: "tiny" backend: "python"')
    assert "lacks the parameter face" in read_repository(repository).problems[0]


def test_a_field_that_was_added_is_no_problem(repository: Path) -> None:
    path = repository / "tiny" / "config.pbtxt"
    path.write_text(path.read_text() + 'metric_tags { key: "team" value: "a" }\n')
    assert read_repository(repository).problems == ()


def test_a_copied_folder_does_not_pass_under_another_name(repository: Path) -> None:
    shutil.copytree(repository / "tiny", repository / "copy")
    assert read_repository(repository).problems == (
        f"{repository}/copy/config.pbtxt:1: name: is not what builder deploy writes; {AGAIN}",
    )


@pytest.mark.parametrize("name", ['a"b', "a$b", "a`b", "a b", "a\nb", "a;b", "a'b", "a\udcffb"])
def test_a_model_that_a_shell_would_misread_is_a_problem(repository: Path, name: str) -> None:
    (repository / name).mkdir()
    (repository / name / "config.pbtxt").write_text('backend: "python"')
    read = read_repository(repository)
    assert read.others == ()
    assert [problem.partition(": ")[2] for problem in read.problems] == [
        "a model's name may have letters, digits and . _ - + @ = , : %; rename it"
    ]
