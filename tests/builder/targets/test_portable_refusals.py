"""The portable target refuses what does not fit: engines, manifests and options."""

import dataclasses
from pathlib import Path

import onnxruntime as ort
import pytest

from builder.artifact.config import KVGeometry, KVGroup
from builder.artifact.store import Artifact
from builder.errors import ArtifactError, UnsupportedError
from builder.targets import open_executor
from builder.targets.compiler import TargetOptions
from builder.targets.portable import compile as portable
from tests.built import compile_model
from tests.models import tiny_llama


@pytest.fixture(scope="module", params=["none", "int8"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"))
    return compile_model(
        model,
        tmp_path_factory.mktemp("built") / "artifact",
        target="portable",
        quant=request.param,
    )


def test_an_engine_that_onnxruntime_refuses_names_both_versions(
    artifact: Artifact, tmp_path: Path
) -> None:
    (engine,) = artifact.manifest.engines
    broken = Artifact(tmp_path, artifact.manifest)
    for name in (engine.path, str(engine.weights)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(artifact.path(name).read_bytes())
    (tmp_path / engine.path).write_bytes(b"not an engine")
    with pytest.raises(ArtifactError, match=ort.__version__):
        open_executor(broken)


@pytest.mark.parametrize(
    "change",
    [
        {"kv": KVGeometry(8, (KVGroup((0, 1), 2, 16, "float32"),))},
        {"kv": KVGeometry(16, (KVGroup((0, 1, 2), 2, 16, "float32"),))},
        {"kv": KVGeometry(16, (KVGroup((0,), 2, 16, "float32"),))},
        {"kv": KVGeometry(16, tuple(KVGroup((i,), 2, 16, "float32") for i in (0, 1)))},
        {"kv": KVGeometry(16, (KVGroup((0, 1), 2, 16, "float16"),))},
        {"kv": KVGeometry(16, (KVGroup((0, 1), 2, 16, "float32", window=8),))},
    ],
)
def test_a_manifest_that_does_not_fit_its_engine_is_refused_at_open(
    artifact: Artifact, change: dict[str, KVGeometry]
) -> None:
    with pytest.raises(ArtifactError, match="not as its manifest says"):
        open_executor(Artifact(artifact.root, dataclasses.replace(artifact.manifest, **change)))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (TargetOptions(dtype="float16"), "dtype float16.*float32, bfloat16"),
        (TargetOptions(quant="int8", group=128), "--group 128; supported: 32, 64"),
        (TargetOptions(quant="int8", group=0), "--group channel; supported: 32, 64"),
        (TargetOptions(quant="fp9"), "quant fp9.*int8.*fp8"),
        (TargetOptions(tp=2), "--tp 2"),
        (TargetOptions(kv="int8"), "--kv int8.*float32"),
    ],
)
def test_what_the_target_lacks_is_refused_with_what_it_has(
    artifact: Artifact, options: TargetOptions, named: str
) -> None:
    with pytest.raises(UnsupportedError, match=named):
        portable.check(artifact.manifest.model, options)
