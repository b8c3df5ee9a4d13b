"""The server's own repository: copies of fronts, links to others, and what Triton can't mistake for something else."""

from pathlib import Path

import pytest

from triton_backend.launcher.deploy import Deployment, deploy
from triton_backend.launcher.mirror import Mirror


@pytest.fixture
def mirror(tmp_path: Path, deployment: Deployment) -> Mirror:
    """Mirror the front `tiny`; its repository has a name that a shell would misread."""
    repository = tmp_path / "a \"$`'\n"
    deploy(repository, deployment, replace_existing=False)
    (tmp_path / "private").mkdir()
    made = Mirror(tmp_path / "private")
    made.add_front(repository / "tiny")
    return made


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_front_is_copied_with_its_bytecode(mirror: Mirror) -> None:
    bytecode, code, config = files(mirror.root / "tiny")
    assert bytecode.startswith("1/__pycache__/model.")
    assert (code, config) == ("1/model.py", "config.pbtxt")
    assert not any(path.is_symlink() for path in mirror.root.rglob("*"))


def test_what_is_changed_in_the_repository_later_is_not_served(
    mirror: Mirror, tmp_path: Path
) -> None:
    source = next(tmp_path.glob("a *")) / "tiny" / "1" / "model.py"
    source.write_text("import os")
    assert (mirror.root / "tiny" / "1" / "model.py").read_text() != "import os"


def test_a_model_of_others_is_a_link(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mirror.add_other(tmp_path / "other")
    assert (mirror.root / "other").readlink() == tmp_path / "other"


def test_a_model_that_is_out_is_not_in_the_repository(mirror: Mirror) -> None:
    mirror.take_out("tiny")
    assert list(mirror.root.iterdir()) == []


def test_a_model_that_is_back_is_whole_and_newer(mirror: Mirror) -> None:
    before = files(mirror.root)
    then = (mirror.root / "tiny" / "1").stat().st_mtime_ns
    mirror.take_out("tiny")
    mirror.put_back("tiny")
    assert files(mirror.root) == before
    assert (mirror.root / "tiny" / "1").stat().st_mtime_ns > then
