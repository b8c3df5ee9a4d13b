"""The directions of imports: the tree keeps them, and each contract catches a breach seeded into a bare tree."""

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
# Without the finder of an editable install, which would answer with the installed tree wherever it is asked.
PROGRAM = """
import sys
sys.meta_path = [finder for finder in sys.meta_path if "ScikitBuild" not in type(finder).__name__]
sys.path.insert(0, ".")
from importlinter.cli import lint_imports_command
lint_imports_command()
"""

TREE = {
    "builder": "cli.main gate.reading pipeline export.folder limits package trial quant.plan archs.llama checkpoint.tensors "
    "artifact.config errors",
    "builder.graph": "graph ops",
    "builder.targets": "compiler executor a.compile a.execute a.plan b.compile b.execute",
    "plugins": "op.spec",
    "triton_backend": "launcher.server model openai.app front attach responder host hosting fronts "
    "joined_front worker loading model_config engine faces.vllm metrics commit step sampling.chain protocol "
    "answers chat_template admission scheduler detokenizer stops templates.environment kv.pool sequence "
    "text messages tokenizer chat_messages request config front_settings link rendezvous segments token_bytes "
    "simulation.run intake reading allowance reuse waiting plan policies.fcfs rows engine_metrics drafting timeline "
    "tenancy reception outbox text_queue news groundwork occurrences engine_options histogram reasons structured.mask constraint failures field_checks "
    "text_files subprograms",
}
"""Package -> its modules, all of them empty until a test writes into one."""

PLUGINS = "plugins import nobody"
BUILDER = "the layers of builder"
RUNNING = "what runs an engine knows nothing of compiling"
EXECUTORS = "an executor imports no other target"
SERVING = "the layers of triton_backend"
INSIDE = "what runs inside Triton loads no engine and no client"
SEEN = "triton_backend sees of builder the executors, the artifact and the errors"
PROTECTED = "of builder, only the command line imports triton_backend"
LIGHT = "serving needs no compile-time library"
TORCHLESS = "checkpoints are read and graphs are built without PyTorch"
CYCLES = "no cycles inside a package"

BREACHES = [
    (PLUGINS, {"plugins.op.spec": "import builder.errors"}),
    (PLUGINS, {"plugins.op.spec": "def f():\n    import triton_backend.request"}),
    (BUILDER, {"builder.errors": "import builder.artifact.config"}),
    (BUILDER, {"builder.artifact.config": "import builder.checkpoint.tensors"}),
    (BUILDER, {"builder.checkpoint.tensors": "import builder.graph.ops"}),
    (BUILDER, {"builder.graph.ops": "import builder.archs.llama"}),
    (BUILDER, {"builder.archs.llama": "import builder.quant.plan"}),
    (BUILDER, {"builder.quant.plan": "import builder.archs.llama"}),
    (BUILDER, {"builder.quant.plan": "import builder.targets.compiler"}),
    (BUILDER, {"builder.export.folder": "import builder.pipeline"}),
    (BUILDER, {"builder.pipeline": "import builder.export.folder"}),
    (BUILDER, {"builder.targets.a.compile": "import builder.pipeline"}),
    (BUILDER, {"builder.pipeline": "import builder.cli.main"}),
    (BUILDER, {"builder.pipeline": "import builder.gate.reading"}),
    (BUILDER, {"builder.gate.reading": "import builder.cli.main"}),
    (BUILDER, {"builder.utils": ""}),
    (RUNNING, {"builder.targets.a.execute": "import builder.targets.a.compile"}),
    (RUNNING, {"builder.targets.executor": "import builder.targets.compiler"}),
    (
        RUNNING,
        {
            "builder.targets.a.execute": "from typing import TYPE_CHECKING\n"
            "if TYPE_CHECKING:\n    import builder.graph.ops"
        },
    ),
    (
        RUNNING,
        {
            "builder.targets.a.execute": "import builder.targets.a.plan",
            "builder.targets.a.plan": "def f():\n    import builder.checkpoint.tensors",
        },
    ),
    (EXECUTORS, {"builder.targets.a.execute": "import builder.targets.b.execute"}),
    (SERVING, {"triton_backend.request": "import triton_backend.sequence"}),
    (SERVING, {"triton_backend.config": "import triton_backend.request"}),
    (SERVING, {"triton_backend.kv.pool": "import triton_backend.sequence"}),
    (SERVING, {"triton_backend.kv.pool": "import triton_backend.scheduler"}),
    (SERVING, {"triton_backend.scheduler": "import triton_backend.step"}),
    (SERVING, {"triton_backend.step": "import triton_backend.sampling.chain"}),
    (SERVING, {"triton_backend.answers": "import triton_backend.engine"}),
    (SERVING, {"triton_backend.engine": "import triton_backend.worker"}),
    (SERVING, {"triton_backend.worker": "import triton_backend.joined_front"}),
    (SERVING, {"triton_backend.joined_front": "import triton_backend.fronts"}),
    (SERVING, {"triton_backend.reception": "import triton_backend.joined_front"}),
    (SERVING, {"triton_backend.tenancy": "import triton_backend.kv.domains"}),
    (SERVING, {"triton_backend.engine_options": "import triton_backend.front_settings"}),
    (SERVING, {"triton_backend.hosting": "import triton_backend.host"}),
    (SERVING, {"triton_backend.host": "import triton_backend.model"}),
    (SERVING, {"triton_backend.attach": "import triton_backend.host"}),
    (SERVING, {"triton_backend.link": "import triton_backend.messages"}),
    (SERVING, {"triton_backend.protocol": "import triton_backend.faces.vllm"}),
    (SERVING, {"triton_backend.openai.app": "import triton_backend.model"}),
    (SERVING, {"triton_backend.common": ""}),
    (INSIDE, {"triton_backend.front": "def f():\n    import triton_backend.hosting"}),
    (INSIDE, {"triton_backend.model": "import triton_backend.engine"}),
    (INSIDE, {"triton_backend.attach": "import builder.targets.executor"}),
    (INSIDE, {"triton_backend.faces.vllm": "import tritonclient"}),
    (SEEN, {"triton_backend.engine": "import builder.pipeline"}),
    (SEEN, {"triton_backend.engine": "import builder.targets.a.compile"}),
    (SEEN, {"triton_backend.engine": "import builder.checkpoint.tensors"}),
    (PROTECTED, {"builder.pipeline": "import triton_backend.engine"}),
    (LIGHT, {"triton_backend.engine": "def f():\n    import torch"}),
    (LIGHT, {"builder.artifact.config": "import onnx"}),
    (LIGHT, {"builder.targets.b.execute": "from onnx_ir import Model"}),
    (LIGHT, {"builder.targets.executor": "import gguf"}),
    (LIGHT, {"builder.errors": "import transformers"}),
    (TORCHLESS, {"builder.checkpoint.tensors": "import torch"}),
    (TORCHLESS, {"builder.graph.ops": "import transformers"}),
    (
        CYCLES,
        {
            "builder.graph.ops": "import builder.graph.graph",
            "builder.graph.graph": "import builder.graph.ops",
        },
    ),
]

ALLOWED = {
    "builder.cli.main": "import triton_backend.engine, builder.pipeline",
    "builder.gate.reading": "import builder.pipeline, builder.targets.executor",
    "builder.pipeline": "import builder.targets.a.compile, builder.quant.plan, builder.archs.llama",
    "builder.targets.a.compile": "import onnx, builder.quant.plan, builder.targets.compiler",
    "builder.targets.a.execute": "import builder.targets.executor, builder.targets.a.plan, plugins.op.spec",
    "builder.targets.executor": "import builder.artifact.config, builder.errors",
    "builder.quant.plan": "import torch, builder.graph.ops",
    "triton_backend.engine": "import builder.targets.a.execute, builder.artifact.config, triton_backend.step",
    "triton_backend.step": "import triton_backend.scheduler",
    "triton_backend.text": "import triton_backend.request, builder.errors",
    "triton_backend.model": "import triton_backend.front, triton_backend.attach, triton_backend.faces.vllm",
    "triton_backend.loading": "import triton_backend.engine, builder.targets, triton_backend.messages",
    "triton_backend.model_config": "import tritonclient, google, triton_backend.faces.vllm",
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", PROGRAM, "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def plant(folder: Path, sources: dict[str, str]) -> None:
    """Lay out the bare tree under `folder`, with `sources` written into the modules they name."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    modules = [f"{package}.{name}" for package, names in TREE.items() for name in names.split()]
    for module in [*modules, *sources]:
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(sources.get(module, ""))
    for package in ("builder", "plugins", "triton_backend"):
        for child in [folder / package, *(folder / package).rglob("*/")]:
            (child / "__init__.py").touch()


def broken(output: str) -> set[str]:
    return {match[1] for match in re.finditer(r"^(.*\S) +BROKEN", output, re.MULTILINE)}


def test_the_tree_keeps_every_contract() -> None:
    result = lint(ROOT)
    assert result.returncode == 0, result.stdout


def test_what_the_design_allows_passes(tmp_path: Path) -> None:
    plant(tmp_path, ALLOWED)
    result = lint(tmp_path)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(("contract", "sources"), BREACHES)
def test_a_breach_breaks_its_contract(
    contract: str, sources: dict[str, str], tmp_path: Path
) -> None:
    plant(tmp_path, sources)
    result = lint(tmp_path)
    assert result.returncode == 1, result.stdout
    assert any(
        contract.startswith(name) or name.startswith(contract) for name in broken(result.stdout)
    )


def test_every_contract_has_a_breach_that_breaks_it() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {contract["name"] for contract in linter["contracts"]} == {name for name, _ in BREACHES}
