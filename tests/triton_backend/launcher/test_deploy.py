"""A repository is written whole, replaced whole, and nobody else's folder is touched."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from builder.errors import ArtifactError, UserError
from triton_backend.launcher import deploy as module
from triton_backend.launcher.config_file import read_config
from triton_backend.launcher.deploy import Deployment, deploy
from triton_backend.launcher.deployed import MODEL_PY, MODEL_PY_TEXT, read_repository


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "repository"


def files(repository: Path) -> dict[str, bytes]:
    """Give every file of a repository, hidden ones too."""
    paths = [path for path in repository.rglob("*") if path.is_file()]
    return {str(path.relative_to(repository)): path.read_bytes() for path in paths}


def test_a_deployment_is_two_models_of_two_files_each(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    assert sorted(files(repository)) == [
        "tiny/1/model.py",
        "tiny/config.pbtxt",
        "vllm_model/1/model.py",
        "vllm_model/config.pbtxt",
    ]


def test_the_code_of_a_model_is_an_import_of_the_front(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    code = (repository / "tiny" / MODEL_PY).read_text()
    assert "from triton_backend.model import TritonPythonModel\n" in code
    assert len(code.splitlines()) == 5


def test_the_configuration_is_what_a_decoupled_front_needs(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    config = read_config(repository / "tiny").config
    assert (config.name, config.backend, config.max_batch_size) == ("tiny", "python", 0)
    assert config.model_transaction_policy.decoupled
    assert [(group.kind, group.count) for group in config.instance_group] == [(2, 1)]
    assert all(tensor.optional for tensor in config.input)


def test_the_parameters_tell_the_front_what_it_serves(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    told = {model: read_config(repository / model).parameters for model in deployment.faces}
    artifact = str(deployment.artifact)
    assert told == {
        "tiny": {"face": "forerun", "deployment": "tiny", "artifact": artifact},
        "vllm_model": {"face": "vllm", "deployment": "tiny", "artifact": artifact},
    }


def test_threads_are_a_parameter_where_they_are_given(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, replace(deployment, threads=3), replace_existing=False)
    assert read_config(repository / "tiny").parameters["threads"] == "3"


def test_a_relative_artifact_is_named_by_its_absolute_path(
    repository: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(deployment.artifact.parent)
    relative = replace(deployment, artifact=Path(deployment.artifact.name))
    deploy(repository, relative, replace_existing=False)
    assert read_config(repository / "tiny").parameters["artifact"] == str(deployment.artifact)


def test_the_same_deployment_gives_the_same_bytes(tmp_path: Path, deployment: Deployment) -> None:
    for name in ("a", "b"):
        deploy(tmp_path / name, deployment, replace_existing=False)
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_what_is_no_artifact_is_refused_and_no_repository_is_made(
    repository: Path, deployment: Deployment, tmp_path: Path
) -> None:
    with pytest.raises(ArtifactError, match="there is no artifact at"):
        deploy(
            repository, replace(deployment, artifact=tmp_path / "nowhere"), replace_existing=False
        )
    assert not repository.exists()


def test_a_repository_in_a_folder_that_does_not_exist_is_refused(
    tmp_path: Path, deployment: Deployment
) -> None:
    with pytest.raises(UserError, match=r"the folder .*nowhere does not exist; create it first"):
        deploy(tmp_path / "nowhere" / "repository", deployment, replace_existing=False)


@pytest.mark.parametrize("name", ["", ".hidden", "a/b", "-x", "a b", "x" * 129, "é"])
@pytest.mark.parametrize("option", ["name", "vllm_name"])
def test_a_name_that_triton_could_not_take_is_refused(
    repository: Path, deployment: Deployment, option: str, name: str
) -> None:
    with pytest.raises(UserError, match=f"--{option.replace('_', '-')} must be 1 to 128 letters"):
        deploy(repository, replace(deployment, **{option: name}), replace_existing=False)


def test_one_name_for_both_models_is_refused(repository: Path, deployment: Deployment) -> None:
    with pytest.raises(UserError, match="are both tiny; choose two names"):
        deploy(repository, replace(deployment, vllm_name="tiny"), replace_existing=False)


def test_a_second_deployment_with_the_same_vllm_name_is_told_how_to_go_on(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    before = files(repository)
    for replace_existing in (False, True):
        with pytest.raises(UserError) as refusal:
            deploy(repository, replace(deployment, name="other"), replace_existing=replace_existing)
        assert str(refusal.value) == (
            f"the model vllm_model in {repository} belongs to the deployment tiny;"
            " choose another --vllm-name"
        )
    assert files(repository) == before


def test_the_name_of_another_deployment_s_model_is_refused(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    other = replace(deployment, name="vllm_model", vllm_name="other")
    with pytest.raises(UserError, match=r"vllm_model .* deployment tiny; choose another --name"):
        deploy(repository, other, replace_existing=True)


def test_two_deployments_stand_side_by_side(repository: Path, deployment: Deployment) -> None:
    deploy(repository, deployment, replace_existing=False)
    deploy(repository, replace(deployment, name="b", vllm_name="c"), replace_existing=False)
    models = [front.model for front in read_repository(repository).fronts]
    assert models == ["b", "c", "tiny", "vllm_model"]


def test_a_deployment_is_replaced_only_when_asked(repository: Path, deployment: Deployment) -> None:
    deploy(repository, deployment, replace_existing=False)
    with pytest.raises(UserError, match="has a deployment tiny already; add --force"):
        deploy(repository, deployment, replace_existing=False)
    deploy(repository, replace(deployment, threads=2), replace_existing=True)
    assert read_config(repository / "vllm_model").parameters["threads"] == "2"


def test_models_that_a_deployment_no_longer_has_go_away(
    repository: Path, deployment: Deployment
) -> None:
    deploy(repository, deployment, replace_existing=False)
    deploy(repository, replace(deployment, vllm_name="new"), replace_existing=True)
    assert sorted(path.name for path in repository.iterdir()) == ["new", "tiny"]


@pytest.mark.parametrize("replace_existing", [False, True])
def test_a_folder_of_somebody_else_is_never_replaced(
    repository: Path, deployment: Deployment, replace_existing: bool
) -> None:
    (repository / "vllm_model").mkdir(parents=True)
    (repository / "vllm_model" / "config.pbtxt").write_text('name: "vllm_model"')
    before = files(repository)
    with pytest.raises(UserError, match="exists, and builder deploy did not write it"):
        deploy(repository, deployment, replace_existing=replace_existing)
    assert files(repository) == before


def test_a_damaged_model_of_ours_can_be_replaced(repository: Path, deployment: Deployment) -> None:
    deploy(repository, deployment, replace_existing=False)
    before = files(repository)
    (repository / "tiny" / "config.pbtxt").write_text("max_batch_size: $")
    deploy(repository, deployment, replace_existing=True)
    assert files(repository) == before


def test_a_damaged_model_of_somebody_else_is_not_replaced(
    repository: Path, deployment: Deployment
) -> None:
    (repository / "tiny" / "1").mkdir(parents=True)
    (repository / "tiny" / "config.pbtxt").write_text("max_batch_size: $")
    (repository / "tiny" / MODEL_PY).write_text(MODEL_PY_TEXT.upper())
    with pytest.raises(UserError, match="did not write it"):
        deploy(repository, deployment, replace_existing=True)


def test_a_write_that_fails_leaves_what_was_there(
    repository: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deploy(repository, deployment, replace_existing=False)
    before = files(repository)

    def fail(*_: object, **__: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "model_config", fail)
    with pytest.raises(OSError, match="No space left"):
        deploy(repository, deployment, replace_existing=True)
    assert files(repository) == before


def test_a_move_that_fails_puts_everything_back(
    repository: Path, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last of four moves: two old models are out and one new model is in by then."""
    deploy(repository, deployment, replace_existing=False)
    before = files(repository)
    moved = []
    rename = Path.rename

    def fail_late(source: Path, destination: Path) -> Path:
        moved.append(source)
        if len(moved) == 4:
            raise PermissionError(13, "Permission denied")
        return rename(source, destination)

    monkeypatch.setattr(Path, "rename", fail_late)
    with pytest.raises(PermissionError):
        deploy(repository, replace(deployment, threads=2), replace_existing=True)
    monkeypatch.undo()
    assert files(repository) == before


def test_nothing_hidden_is_left_behind(repository: Path, deployment: Deployment) -> None:
    deploy(repository, deployment, replace_existing=False)
    deploy(repository, deployment, replace_existing=True)
    assert {path.name for path in repository.iterdir()} == {"tiny", "vllm_model"}


def test_every_tensor_of_the_configuration_has_one_dimension(
    repository: Path, deployment: Deployment
) -> None:
    """Clients of rank 1 and rank 2 can't share a configuration; both of ours are rank 1."""
    deploy(repository, deployment, replace_existing=False)
    for model in deployment.faces:
        config = read_config(repository / model).config
        shapes = [list(tensor.dims) for tensor in (*config.input, *config.output)]
        assert json.dumps(shapes)
        assert {len(shape) for shape in shapes} == {1}


def test_an_artifact_whose_path_is_not_utf_8_is_refused(
    repository: Path, deployment: Deployment, tmp_path: Path
) -> None:
    artifact = shutil.copytree(deployment.artifact, tmp_path / "\udcff")
    with pytest.raises(UserError, match=r"the path of the artifact .* is not UTF-8; rename it"):
        deploy(repository, replace(deployment, artifact=artifact), replace_existing=False)
    assert not repository.exists()
