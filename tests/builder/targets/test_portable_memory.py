"""The portable executor where memory runs out: that is said, and nothing else is blamed."""

import subprocess
import sys

import onnxruntime as ort
import pytest

from builder.artifact.store import Artifact
from builder.errors import ArtifactError, EngineError
from builder.targets import open_executor
from tests.built import compile_model
from tests.models import tiny_llama

HOW_ONNXRUNTIME_SAYS_IT = [
    RuntimeError("[ONNXRuntimeError] : 6 : Exception during initialization: std::bad_alloc"),
    RuntimeError("[ONNXRuntimeError] : 1 : mmap failed: Cannot allocate memory"),
    MemoryError(),
]


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"), hidden_size=1024, head_dim=64)
    return compile_model(model, tmp_path_factory.mktemp("built") / "artifact", target="portable")


@pytest.mark.parametrize("failure", HOW_ONNXRUNTIME_SAYS_IT)
def test_memory_that_runs_out_at_load_is_called_so(
    artifact: Artifact, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise failure

    monkeypatch.setattr(ort, "InferenceSession", fail)
    with pytest.raises(EngineError, match="memory ran out while the engine was loaded"):
        open_executor(artifact)


def test_another_failure_is_no_matter_of_memory(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such operator")

    monkeypatch.setattr(ort, "InferenceSession", fail)
    with pytest.raises(ArtifactError, match="refuses engines"):
        open_executor(artifact)


LOAD = """
import sys
from pathlib import Path
from builder.artifact.store import open_artifact
from builder.errors import EngineError
from builder.targets import open_executor
import builder.targets.portable.execute, resource
artifact = open_artifact(Path(sys.argv[1]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), resource.RLIM_INFINITY))
try:
    open_executor(artifact, threads=1)
except EngineError as error:
    print(error)
"""


def test_a_process_that_may_take_no_more_memory_says_so(artifact: Artifact) -> None:
    result = subprocess.run(
        [sys.executable, "-c", LOAD, str(artifact.root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "memory" in result.stdout, result.stderr
