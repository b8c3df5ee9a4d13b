"""The generic build on another processor: cross-compiled for aarch64, and run under emulation."""

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from builder.artifact.store import Artifact
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import tiny_llama

ROOT = Path(__file__).parents[4]
NATIVE = ROOT / "builder" / "targets" / "cpu" / "native"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
FLAGS = (
    *("-std=gnu++20", "-O2", "-static", "-pthread", "-fno-strict-aliasing"),
    *("-ffp-contract=off", "-fno-math-errno", "-w", f"-I{ROOT}"),
    *("-DFORERUN_ISA=forerun_generic", '-DFORERUN_NAME="generic"'),
)
TOKENS = draw(300)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which(COMPILER) is None or shutil.which(EMULATOR) is None,
        reason=f"{COMPILER} and {EMULATOR} are not both installed",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("aarch64") / "run_plan"
    sources = [
        *sorted(NATIVE.glob("*.cpp")),
        ROOT / "plugins" / "native" / "team.cpp",
        Path(__file__).parent / "native" / "run_plan.cpp",
    ]
    subprocess.run([COMPILER, *FLAGS, *sources, "-o", path], check=True)
    return path


@pytest.fixture(scope="module", params=["none-float32", "none-int8", "int8-bfloat16"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    quant, kv = request.param.split("-")
    model = tiny_llama(tmp_path_factory.mktemp("m"), head_dim=20)
    return compile_model(model, tmp_path_factory.mktemp("b") / "artifact", quant=quant, kv=kv)


def emulated(program: Path, artifact: Artifact, *, threads: int, chunk: int) -> np.ndarray:
    """Give the logits of all tokens."""
    (engine,) = artifact.manifest.engines
    sizes = artifact.manifest.kv.block_size, artifact.manifest.model.vocab_size, threads, chunk
    result = subprocess.run(
        [
            *(EMULATOR, program, artifact.path(engine.path), artifact.path(str(engine.weights))),
            *map(str, sizes),
        ],
        input=np.array(TOKENS, np.int32).tobytes(),
        capture_output=True,
        check=True,
    )
    return np.frombuffer(result.stdout, np.float32).reshape(len(TOKENS), -1)


def test_logits_equal_the_references_of_the_operations(program: Path, artifact: Artifact) -> None:
    got = emulated(program, artifact, threads=2, chunk=len(TOKENS))
    want = PlanRunner(artifact).logits(TOKENS)
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999
    if artifact.manifest.engines[0].requested == "float32":
        assert np.abs(got - want).mean() < 0.01 * want.std()


def test_chunks_and_threads_give_the_same_bits(program: Path, artifact: Artifact) -> None:
    whole = emulated(program, artifact, threads=1, chunk=len(TOKENS))
    for threads, chunk in ((2, 50), (3, 299)):
        np.testing.assert_array_equal(
            emulated(program, artifact, threads=threads, chunk=chunk), whole
        )
