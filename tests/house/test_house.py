"""What holds for the repository as a whole: a light command line, light serving, and a README that tells the truth."""

import re
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGES = ("builder", "plugins", "triton_backend")
README = (ROOT / "README.md").read_text()
EXTRAS = (
    "cpu",
    "serve",
    "triton-server",
    "quant",
    "tensorrt",
    "tensorrt-rtx",
    "gpu",
    "demo",
    "dev",
)
COMPILING = {"torch", "transformers", "modelopt", "onnx", "onnx_ir", "gguf"}
HEAVY = COMPILING | {
    "huggingface_hub",
    "jinja2",
    "numpy",
    "onnxruntime",
    "tensorrt",
    "tensorrt_rtx",
    "tokenizers",
    "triton_backend",
}
HELP_S = 0.5
"""Aim for `builder --help`; the test allows ten times as much, for busy machines."""


def tracked(*patterns: str) -> list[str]:
    command = ["git", "ls-files", "-co", "--exclude-standard", *patterns]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.splitlines() if (ROOT / name).is_file()]


def modules_after(code: str) -> set[str]:
    """Run `code` in a fresh interpreter and give the top-level names of all it imported."""
    report = "; import sys; print(*{n.partition('.')[0] for n in sys.modules}, file=sys.stderr)"
    command = [sys.executable, "-c", code + report]
    return set(
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stderr.split()
    )


def test_help_starts_at_once() -> None:
    command = [str(Path(sys.executable).with_name("builder")), "--help"]
    start = time.perf_counter()
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    elapsed = time.perf_counter() - start
    print(f"{elapsed:.3f} s, aim {HELP_S} s")  # noqa: T201 - shown with -s, and on failure
    assert "compile" in result.stdout
    assert elapsed < 10 * HELP_S


def test_help_imports_nothing_heavy() -> None:
    imported = modules_after(
        "from builder.cli.main import main; main(['--help'], standalone_mode=False)"
    )
    assert "click" in imported
    assert not imported & HEAVY


def test_serving_imports_no_compile_time_library() -> None:
    names = [
        ".".join(Path(name).with_suffix("").parts).removesuffix(".__init__")
        for name in tracked(
            "triton_backend/*.py", "builder/targets/*/execute.py", "builder/artifact/*.py"
        )
    ]
    assert any(name.endswith(".execute") for name in names)
    inside_triton = "triton_python_backend_utils"  # of a server's own folder
    stand_in = f"import sys, types; sys.modules['{inside_triton}'] = types.ModuleType('pb_utils')"
    assert not modules_after(f"{stand_in}; import {', '.join(names)}") & COMPILING


@pytest.mark.parametrize("extra", EXTRAS)
def test_every_extra_is_offered(extra: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "forerun"
    assert extra in project["optional-dependencies"]


def test_readme_opens_with_the_two_commands() -> None:
    first_block = README.split("```")[1]
    commands = [line.split("#")[0].strip() for line in first_block.splitlines()[1:] if line.strip()]
    assert commands == ["scripts/demo", "scripts/test"]
    assert README.index("```") < 1200


@pytest.mark.parametrize(
    "command", sorted(p.name for p in (ROOT / "scripts").iterdir() if p.is_file() and not p.suffix)
)
def test_every_command_has_a_line_in_readme(command: str) -> None:
    assert re.search(rf"^\| `scripts/{command}\b", README, re.MULTILINE)


def test_readme_names_only_files_that_exist() -> None:
    roots = "|".join((*PACKAGES, "scripts", "tests", "model_repo"))
    named = re.findall(rf"`((?:{roots})/[\w./-]*)`", README)
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_readme_has_a_line_for_every_package() -> None:
    folders = {str(Path(name).parent) for name in tracked(*(f"{p}/*.py" for p in PACKAGES))}
    assert [folder for folder in sorted(folders) if f"`{folder}/`" not in README] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").is_file()


def test_every_folder_of_python_is_a_package() -> None:
    folders = {Path(name).parent for name in tracked(*(f"{package}/*.py" for package in PACKAGES))}
    assert [str(f) for f in folders if not (ROOT / f / "__init__.py").is_file()] == []


def test_no_file_names_a_place_on_somebody_s_machine() -> None:
    home = re.compile(r"/(?:home|root|Users|work)/\w")
    texts = {name: (ROOT / name).read_text(errors="ignore") for name in tracked()}
    assert [name for name, text in texts.items() if home.search(text)] == []


def test_decisions_are_dated_and_newest_first() -> None:
    text = (ROOT / "DECISIONS.md").read_text()
    dates = re.findall(r"^## (\d{4}-\d{2}-\d{2}) .+$", text, re.MULTILINE)
    assert len(dates) == text.count("\n## ")
    assert dates == sorted(dates, reverse=True)


def test_the_changelog_begins_with_what_is_not_yet_released() -> None:
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(tmp_path: Path) -> None:
    for name in tracked():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    command = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--outdir",
        str(tmp_path),
        str(tmp_path / "tree"),
    ]
    subprocess.run(command, capture_output=True, check=True)
    with zipfile.ZipFile(next(tmp_path.glob("forerun-*.whl"))) as wheel:
        names = set(wheel.namelist())
    sources = set(tracked(*(f"{p}/*.py" for p in PACKAGES), *(f"{p}/py.typed" for p in PACKAGES)))
    sources |= set(tracked("builder/gate/held_out/*", "builder/cli/calibration/*.jsonl"))
    metadata = {name for name in names if ".dist-info/" in name}
    assert names - metadata == {*sources, "builder/targets/cpu/libforerun_cpu.so"}
    assert any(name.endswith("licenses/LICENSE") for name in metadata)
