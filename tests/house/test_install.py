"""What scripts/install.py installs, in which order, and what it refuses."""

import tomllib
from pathlib import Path

import pytest

from scripts import install

ROOT = Path(__file__).resolve().parent.parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
MODEL = ["--no-deps", install.MODEL]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Collect pip's arguments instead of running it; the stamp goes to a folder of the test."""
    calls: list[list[str]] = []

    class Done:
        returncode = 0

    def run(command: list[str], **_: object) -> Done:
        calls.append(command[command.index("--quiet") + 1 :])
        return Done()

    monkeypatch.setattr(install, "STAMP", tmp_path / "stamp.json")
    monkeypatch.setattr(install.subprocess, "run", run)
    return calls


def test_torch_comes_first_and_alone_for_dev_which_has_it_by_another_extra(calls) -> None:
    assert install.main([]) == 0
    assert calls == [["torch==2.13.0"], ["-e", ".[dev]"], MODEL]


def test_the_demo_needs_no_torch(calls) -> None:
    assert install.main(["demo"]) == 0
    assert calls == [["-e", ".[demo]"], MODEL]


def test_serving_gets_neither_torch_nor_model(calls) -> None:
    assert install.main(["serve", "cpu"]) == 0
    assert calls == [["-e", ".[cpu,serve]"]]


def test_a_second_run_does_nothing(calls) -> None:
    install.main(["dev"])
    calls.clear()
    assert install.main(["dev"]) == 0
    assert calls == []


def test_another_extra_is_installed_beside_the_first_and_both_are_remembered(calls) -> None:
    install.main(["dev"])
    install.main(["demo"])
    calls.clear()
    install.main(["dev", "demo"])
    assert calls == []


def test_changed_requirements_are_installed_again() -> None:
    changed = PROJECT | {"dependencies": [*PROJECT["dependencies"], "another"]}
    assert install.fingerprint(PROJECT) != install.fingerprint(changed)


def test_changed_kernels_are_installed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(install, "ROOT", tmp_path)
    kernel = tmp_path / "plugins" / "linear" / "cpu" / "linear.h"
    kernel.parent.mkdir(parents=True)
    kernel.write_text("old")
    before = install.fingerprint(PROJECT)
    kernel.write_text("new")
    assert install.fingerprint(PROJECT) != before


def test_a_failing_pip_is_not_remembered(calls, monkeypatch) -> None:
    class Failed:
        returncode = 7

    monkeypatch.setattr(install.subprocess, "run", lambda *_, **__: Failed())
    assert install.main(["dev"]) == 7
    assert not install.STAMP.exists()


def test_an_unknown_extra_is_refused_with_the_known_ones(calls, capsys) -> None:
    assert install.main(["devel"]) == 2
    message = capsys.readouterr().err
    assert "unknown extra 'devel'" in message
    assert all(extra in message for extra in EXTRAS)
    assert calls == []


@pytest.mark.parametrize("other", ["cpu", "demo", "dev"])
def test_the_two_runtimes_exclude_each_other(other, calls, capsys) -> None:
    assert install.main(["gpu", other]) == 2
    assert "excludes" in capsys.readouterr().err
    assert calls == []
