"""The compile story as a whole: what is refused before work, and complete artifacts or nothing."""

import os
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder import pipeline, targets
from builder.artifact.store import open_artifact
from builder.checkpoint.tensors import Tensor
from builder.errors import ArtifactError, BuildError, CheckpointError, UnsupportedError, UserError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from tests.built import Reports, compile_model
from tests.models import tiny_gguf, tiny_llama
from tests.paged_runner import PagedRunner
from tests.stored import stored_bytes


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return tiny_llama(tmp_path / "tiny")


def logits(artifact: Any, tokens: list[int]) -> Any:
    executor = targets.open_executor(artifact)
    rows = PagedRunner(executor).whole(tokens)
    executor.close()
    return rows


def test_a_plan_names_sizes_and_targets_before_a_weight_is_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tensor, "read", lambda _: pytest.fail("a weight was read"))
    plan = pipeline.plan(CompileRequest(str(model)))
    assert plan.targets == (("cpu", "cpu"),)
    assert plan.default_name == "tiny-float32-tp1"
    assert plan.limits.max_seq_len == plan.config.max_positions == 512
    assert plan.notes == ()


def test_the_estimate_of_weights_is_exact_to_two_percent(model: Path, tmp_path: Path) -> None:
    emulated = product(("cpu", "portable"), ("fp8-dynamic", "nvfp4-weight-only", "mxfp4"))
    for target, quant in (*product(("cpu", "portable"), ("none", "int8")), *emulated):
        options = TargetOptions(quant=quant)
        plan = pipeline.plan(CompileRequest(str(model), targets=(target,), options=options))
        artifact = pipeline.build(plan, tmp_path / f"{target}-{quant}", progress=Reports())
        (engine,) = artifact.manifest.engines
        written = sum(stored_bytes(artifact.path(str(engine.weights))).values())
        assert plan.estimate.weights_bytes == pytest.approx(written, rel=0.02)


def test_stages_come_in_order_and_their_bytes_add_up(model: Path, tmp_path: Path) -> None:
    reports = Reports()
    compile_model(model, tmp_path / "a", progress=reports)
    names = [name for name, _ in reports.stages]
    assert names == ["hash source", "build graph for cpu", "write cpu", "verify"]
    for (_, total), done in zip(reports.stages, reports.done, strict=True):
        assert done == total


@pytest.mark.parametrize("quant", ["none", "int8"])
def test_the_same_input_gives_the_same_bytes_wherever_it_lies(tmp_path: Path, quant: str) -> None:
    trees = []
    for place in ("here", "there"):
        model = tiny_llama(tmp_path / place / "tiny")
        root = compile_model(model, tmp_path / place / "out", quant=quant).root
        files = sorted(path for path in root.rglob("*") if path.is_file())
        trees.append({path.relative_to(root): path.read_bytes() for path in files})
    assert trees[0] == trees[1]


def test_a_gguf_of_the_same_weights_gives_the_same_logits(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 256, 60).tolist()
    folder = compile_model(tiny_llama(tmp_path / "hf"), tmp_path / "a", max_num_seqs=64)
    file = compile_model(tiny_gguf(tmp_path / "tiny.gguf"), tmp_path / "b", max_num_seqs=64)
    np.testing.assert_array_equal(logits(folder, tokens), logits(file, tokens))


def test_shards_and_a_single_file_give_the_same_weights(tmp_path: Path) -> None:
    one = compile_model(tiny_llama(tmp_path / "one"), tmp_path / "a")
    three = compile_model(tiny_llama(tmp_path / "three", shards=3), tmp_path / "b")
    name = "weights/cpu.rank0.safetensors"
    assert one.manifest.files[name] == three.manifest.files[name]


def test_a_head_that_only_claims_to_be_tied_is_used_as_its_own(tmp_path: Path) -> None:
    untied = tiny_llama(tmp_path / "untied", tie_word_embeddings=False)
    config = (untied / "config.json").read_text()
    (untied / "config.json").write_text(
        config.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true')
    )
    plan = pipeline.plan(CompileRequest(str(untied)))
    assert not plan.config.tied_head


@pytest.mark.parametrize(
    ("request_", "named"),
    [
        (CompileRequest("MODEL", targets=("tensorrt",)), "tensorrt is not implemented yet"),
        (CompileRequest("MODEL", targets=("cpu", "tensorrt-rtx:sm89")), "tensorrt-rtx:sm89"),
        (CompileRequest("MODEL", targets=("cup",)), "Did you mean cpu"),
        (CompileRequest("MODEL", options=TargetOptions(dtype="float16")), "dtype float16"),
        (CompileRequest("MODEL", options=TargetOptions(tp=2)), "--tp 2"),
    ],
)
def test_what_no_target_can_do_is_refused_by_name(
    model: Path, request_: CompileRequest, named: str
) -> None:
    request = CompileRequest(str(model), request_.targets, request_.options)
    with pytest.raises(UnsupportedError, match=named):
        pipeline.plan(request)


def test_a_tensor_that_nothing_uses_is_refused_by_name_and_leaves_nothing(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", mlp_bias=True)
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(config.replace('"mlp_bias": true', '"mlp_bias": false'))
    with pytest.raises(UnsupportedError, match=r"mlp\.\w+_proj\.bias"):
        compile_model(model, tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m"]


def test_a_tensor_of_another_shape_is_refused_with_both_shapes(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    config = (model / "config.json").read_text()
    (model / "config.json").write_text(
        config.replace('"intermediate_size": 96', '"intermediate_size": 95')
    )
    with pytest.raises(CheckpointError, match=r"\(96, 64\).*\(95, 64\)"):
        compile_model(model, tmp_path / "out")


def test_an_engine_whose_logits_are_not_finite_is_never_published(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = bytearray((model / "model.safetensors").read_bytes())
    header = int.from_bytes(weights[:8], "little")
    huge = np.full((len(weights) - 8 - header) // 4, 1e18, "<f4").tobytes()
    (model / "model.safetensors").write_bytes(bytes(weights[: 8 + header]) + huge)
    with pytest.raises(BuildError, match="not finite"):
        compile_model(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_replacing_keeps_the_old_artifact_until_the_new_one_is_complete(
    model: Path, tmp_path: Path
) -> None:
    old = compile_model(model, tmp_path / "out")
    with pytest.raises(UserError, match="--force"):
        compile_model(model, tmp_path / "out")
    broken = tiny_llama(tmp_path / "broken")
    os.truncate(broken / "model.safetensors", 5000)
    with pytest.raises(CheckpointError):
        compile_model(broken, tmp_path / "out", replace_existing=True)
    assert open_artifact(tmp_path / "out").manifest == old.manifest
    new = compile_model(model, tmp_path / "out", quant="int8", replace_existing=True)
    assert open_artifact(tmp_path / "out").manifest == new.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broken", "out", "tiny"]


def test_an_interruption_between_the_renames_brings_the_old_artifact_back(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = compile_model(model, tmp_path / "out")
    rename = Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        if "partial" in self.name:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compile_model(model, tmp_path / "out", quant="int8", replace_existing=True)
    assert open_artifact(tmp_path / "out").manifest == old.manifest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tiny"]


def test_what_appears_during_a_build_is_never_replaced(model: Path, tmp_path: Path) -> None:
    class Intruder(Reports):
        def stage(self, name: str, total: int) -> None:
            super().stage(name, total)
            if name == "verify":
                (tmp_path / "out").mkdir()
                (tmp_path / "out" / "thesis").write_text("mine")

    with pytest.raises(UserError, match="not an artifact"):
        compile_model(model, tmp_path / "out", progress=Intruder())
    assert (tmp_path / "out" / "thesis").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tiny"]


def test_two_builds_of_one_destination_leave_each_other_alone(model: Path, tmp_path: Path) -> None:
    class Rival(Reports):
        def stage(self, name: str, total: int) -> None:
            super().stage(name, total)
            if name == "verify":
                compile_model(model, tmp_path / "out")

    with pytest.raises(UserError, match="--force"):
        compile_model(model, tmp_path / "out", quant="int8", progress=Rival())
    assert open_artifact(tmp_path / "out").manifest.engines[0].requested == "float32"


def test_a_source_that_changes_during_the_build_is_refused(model: Path, tmp_path: Path) -> None:
    class Writer(Reports):
        def stage(self, name: str, total: int) -> None:
            super().stage(name, total)
            if name.startswith("write"):
                path = model / "model.safetensors"
                data = bytearray(path.read_bytes())
                data[-1] ^= 1
                path.write_bytes(data)

    with pytest.raises(CheckpointError, match="changed while it was compiled"):
        compile_model(model, tmp_path / "out", progress=Writer())
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


def test_a_head_size_whose_answers_would_depend_on_the_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="head size 256; supported: even sizes up to 128"):
        pipeline.plan(
            CompileRequest(str(tiny_llama(tmp_path / "m", head_dim=256)), targets=("portable",))
        )


@pytest.mark.parametrize("quant", ["none", "int8"])
@pytest.mark.parametrize("name", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_weight_that_is_no_number_is_named(tmp_path: Path, name: str, quant: str) -> None:
    model = tiny_llama(tmp_path / "m")
    weights = load_file(model / "model.safetensors")
    weights[name].reshape(-1)[3] = np.inf
    save_file(weights, model / "model.safetensors")
    with pytest.raises(CheckpointError, match=name):
        compile_model(model, tmp_path / "out", quant=quant)


@pytest.mark.parametrize(
    "name", ["tokenizer_config.json", "generation_config.json", "chat_template.jinja"]
)
def test_a_link_to_nothing_is_not_an_absent_file(tmp_path: Path, name: str) -> None:
    model = tiny_llama(tmp_path / "m")
    (model / name).unlink(missing_ok=True)
    (model / name).symlink_to("nowhere")
    with pytest.raises(CheckpointError, match=name):
        pipeline.plan(CompileRequest(str(model)))


def test_code_that_a_model_names_is_noted_and_never_run(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m", auto_map={"AutoModel": "modeling_x.X"})
    assert any("auto_map" in note for note in pipeline.plan(CompileRequest(str(model))).notes)


def test_a_disk_too_small_is_refused_before_anything_is_written(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UserError, match="1 MiB free"):
        compile_model(model, tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]


KILLED = """
import os, signal, sys
from pathlib import Path
from tests.built import Reports, compile_model

class KillDuringWrite(Reports):
    def advance(self, amount):
        if self.stages[-1][0].startswith("write"):
            os.kill(os.getpid(), signal.SIGKILL)

compile_model(Path(sys.argv[1]), Path(sys.argv[2]), progress=KillDuringWrite())
"""


def test_sigkill_leaves_nothing_that_loads_and_the_next_build_cleans_up(
    model: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLED, model, out], check=False, cwd=Path(__file__).parents[2]
    )
    assert done.returncode == -signal.SIGKILL
    assert not out.exists()
    (partial,) = (path for path in tmp_path.iterdir() if "partial" in path.name)
    with pytest.raises(ArtifactError, match=r"artifact\.json"):
        open_artifact(partial)
    open_artifact(compile_model(model, out).root)
    assert not partial.exists()
