"""The rule of skips, tried on small suites of its own."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
SKIPS = "import pytest\n\n@pytest.mark.parametrize('n', [1, 2])\ndef test_a(n):\n    pytest.skip('why')\n"
XFAILS = "import pytest\n\n@pytest.mark.xfail\ndef test_a():\n    assert False\n"
MODULE = "import pytest\n\npytest.skip('why', allow_module_level=True)\n"
PASSES = "def test_a():\n    pass\n"


@pytest.fixture
def run(tmp_path: Path):
    def run(source: str, *, allowed: str = "", arguments: tuple[str, ...] = ()):
        shutil.copy(TESTS / "conftest.py", tmp_path)
        (tmp_path / "allowed_skips.txt").write_text(allowed)
        (tmp_path / "test_x.py").write_text(source)
        command = [sys.executable, "-m", "pytest", "-q", "--disable-plugin-autoload"]
        return subprocess.run(
            [*command, *arguments, f"--rootdir={tmp_path}", str(tmp_path)],
            check=False,
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("source", [SKIPS, XFAILS, MODULE])
def test_an_unlisted_skip_fails_the_run_and_is_named(run, source) -> None:
    result = run(source)
    assert result.returncode == 1
    assert "not listed in allowed_skips.txt: test_x.py" in result.stdout


@pytest.mark.parametrize(
    ("source", "name"), [(SKIPS, "test_x.py::test_a"), (XFAILS, "test_x.py::test_a")]
)
def test_a_listed_skip_passes_with_all_its_parameters(run, source, name) -> None:
    assert run(source, allowed=f"{name} needs what this machine lacks\n").returncode == 0


def test_a_passing_suite_passes(run) -> None:
    assert run(PASSES).returncode == 0


def test_deselecting_is_no_skip(run) -> None:
    result = run(SKIPS + "\ndef test_b():\n    pass\n", arguments=("-k", "test_b"))
    assert result.returncode == 0


def test_a_listed_skip_without_a_reason_is_a_mistake(run) -> None:
    result = run(PASSES, allowed="test_x.py::test_a\n")
    assert result.returncode == 4
    assert "no reason given for test_x.py::test_a" in result.stderr


def test_every_listed_test_exists() -> None:
    lines = [
        line
        for line in (TESTS / "allowed_skips.txt").read_text().splitlines()
        if line[:1] not in "#"
    ]
    for line in lines:
        file, _, name = line.split(maxsplit=1)[0].partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (TESTS.parent / file).read_text()
