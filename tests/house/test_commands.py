"""The one-word commands, run in a bare copy where every program of the environment only writes down its call."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
COMMANDS = sorted(
    path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and not path.suffix
)
PROGRAMS = ("pip", "python", "pytest", "ruff", "mypy", "lint-imports", "builder")
CHECKS = [
    "ruff check .",
    "ruff format --check .",
    "mypy",
    "mypy scripts",
    "lint-imports",
    "python scripts/size.py --totals",
]


class House:
    """A copy of the scripts, and the log of what they called; installing is left out of the log."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.log = folder / "log"
        shutil.copytree(ROOT / "scripts", folder / "scripts")
        shutil.copytree(ROOT / ".ci", folder / ".ci")
        (folder / ".venv" / "bin").mkdir(parents=True)
        for name in PROGRAMS:
            self.program(name, "exit 0")

    def program(self, name: str, body: str) -> None:
        path = self.root / ".venv" / "bin" / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {self.log}\n{body}\n')
        path.chmod(0o755)

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", str(self.root / command), *arguments],
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[str]:
        lines = [line.strip() for line in self.log.read_text().splitlines()]
        return [line for line in lines if not line.startswith("python scripts/install.py")]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_short_strict_and_executable(command: str) -> None:
    path = ROOT / "scripts" / command
    text = path.read_text()
    assert os.access(path, os.X_OK)
    assert len(text.splitlines()) < 15
    assert "set -euo pipefail" in text
    assert text.splitlines()[1].startswith("# "), "the second line says what the command does"


def test_check_runs_every_check_from_any_folder(house: House) -> None:
    assert house.run("scripts/check").returncode == 0
    assert house.calls == CHECKS


def test_test_checks_and_then_runs_the_quick_tests(house: House) -> None:
    assert house.run("scripts/test", "tests/house", "-x").returncode == 0
    assert house.calls == [*CHECKS, "pytest -m not slow and not gpu tests/house -x"]


def test_test_full_runs_the_slow_tests_and_writes_the_table(house: House) -> None:
    assert house.run("scripts/test", "--full", "-x").returncode == 0
    assert house.calls[len(CHECKS) :] == [
        "pytest -m not gpu --junitxml=out/tests.xml -x",
        "python scripts/results.py out/tests.xml tests/RESULTS.md",
    ]


def test_a_failing_suite_leaves_the_table_alone(house: House) -> None:
    house.program("pytest", "exit 1")
    assert house.run("scripts/test", "--full").returncode == 1
    assert not any("results.py" in call for call in house.calls)


@pytest.mark.parametrize("program", ["ruff", "mypy", "lint-imports"])
def test_a_failing_check_fails_the_test_command_before_any_test(house: House, program: str) -> None:
    house.program(program, "exit 3")
    assert house.run("scripts/test").returncode != 0
    assert not any(call.startswith("pytest") for call in house.calls)


def test_continuous_integration_does_what_the_test_command_does(house: House) -> None:
    assert house.run("scripts/test").returncode == 0
    by_hand = house.calls
    house.log.unlink()
    assert house.run(".ci/run").returncode == 0
    assert house.calls == by_hand


def test_the_demo_compiles_generates_deploys_and_serves(house: House) -> None:
    house.program("python", '[ "$1" != -c ] || echo /models/small.gguf')
    result = house.run("scripts/demo")
    assert result.returncode == 0
    assert [call for call in house.calls if not call.startswith("python -c")] == [
        "builder compile /models/small.gguf -o out/smollm2 --force",
        "builder generate out/smollm2 What is the capital of France? --chat --stats",
        "builder deploy out/smollm2 out/model_repo --force",
        "python scripts/demo_clients.py out/model_repo",
    ]
    assert "==> done in " in result.stdout


def test_bench_without_a_name_lists_the_names_and_installs_nothing(house: House) -> None:
    result = house.run("scripts/bench")
    assert (result.returncode, result.stderr) == (0, "")
    assert {"compile", "demo"} <= set(result.stdout.split())
    assert not house.log.exists()


def test_bench_refuses_an_unknown_name_with_the_names_and_installs_nothing(house: House) -> None:
    result = house.run("scripts/bench", "moon")
    assert (result.returncode, result.stdout) == (2, "")
    assert {"compile", "demo"} <= set(result.stderr.split())
    assert not house.log.exists()


def test_bench_runs_the_named_benchmark_with_its_arguments(house: House) -> None:
    assert house.run("scripts/bench", "compile", "--json", "-").returncode == 0
    assert house.calls == ["python scripts/benchmarks/compile.py --json -"]


def test_install_makes_no_second_environment(house: House) -> None:
    assert house.run("scripts/install", "demo").returncode == 0
    assert house.log.read_text() == "python scripts/install.py demo\n"


def test_install_says_that_there_is_no_python(house: House, tmp_path: Path) -> None:
    (house.root / ".venv" / "bin" / "pip").unlink()
    bash = shutil.which("bash")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "dirname").symlink_to(shutil.which("dirname") or "")
    result = subprocess.run(
        [str(bash), str(house.root / "scripts" / "install")],
        env={"PATH": str(tools)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 2
    assert "no Python 3.11 or later" in result.stderr
