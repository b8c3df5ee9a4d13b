"""Compiling checkpoints that are quantized already: the engine's integers and scales are those of the files."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder import pipeline, targets
from builder.artifact.store import Artifact
from builder.cli.inspect import manifest_rows
from builder.cli.plan import plan_rows
from builder.errors import UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from builder.targets.cpu.plan import Code
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import Reports, compile_model
from tests.paged_runner import PagedRunner
from tests.quantized import Written, write_awq, write_gptq, write_packed, write_w8a8

TOKENS = np.random.default_rng(0).integers(0, 256, 40).tolist()
CASES: dict[str, tuple[str, Callable[[Path], dict[str, Written]]]] = {
    "gptq": ("int4 as in the checkpoint (gptq)", write_gptq),
    "gptq 256": ("int4-g256 as in the checkpoint (gptq)", lambda p: write_gptq(p, group=256, intermediate_size=320)),
    "gptq row": ("int4-channel as in the checkpoint (gptq)", lambda p: write_gptq(p, group=0, intermediate_size=160)),
    "gptq uint4": ("uint4-g64 as in the checkpoint (gptq)", lambda p: write_gptq(p, symmetric=False, group=64)),
    "gptq 8": ("int8-g96 as in the checkpoint (gptq)", lambda p: write_gptq(p, bits=8, group=96)),
    "awq": ("uint4-g128 as in the checkpoint (awq)", lambda p: write_awq(p, group=128, tie_word_embeddings=False)),
    "packed": ("int4 as in the checkpoint (compressed-tensors)", write_packed),
    "packed 8": ("int8-g32 as in the checkpoint (compressed-tensors)", lambda p: write_packed(p, bits=8)),
    "w8a8": ("int8-channel as in the checkpoint (compressed-tensors)", write_w8a8),
}  # fmt: skip


@pytest.fixture(scope="module", params=CASES)
def built(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Written], Artifact]:
    folder = tmp_path_factory.mktemp("imported")
    requested, write = CASES[request.param]
    written = write(folder / "m")
    return requested, written, compile_model(folder / "m", folder / "a")


def linears(artifact: Artifact) -> dict[str, tuple[Any, Any, int]]:
    """Give numbers less zero points, scales and group of each operation's weight, by layer and place in it."""
    runner = PlanRunner(artifact)
    operations = [op for op in runner.operations if op["code"] == Code.LINEAR][:-1]
    names = ("qkv", "o_proj", "gate_up", "down_proj")
    found = {}
    for index, op in enumerate(operations):
        weight = runner.weights[op["weight"]]
        found[f"{index // 4}.{names[index % 4]}"] = (*weight.matrix(op["scale"]), weight.group)
    return found


def stacked(
    written: dict[str, Written], layer: str, names: tuple[str, ...]
) -> tuple[Any, Any, Any]:
    """Give numbers less zero points, one scale for each of them, and the sizes of the parts."""
    parts = [written[f"model.layers.{layer}.{name}.weight"] for name in names]
    steps, scales = [], []
    for part in parts:
        width = part.numbers.shape[1]
        zeros = np.zeros_like(part.scales) if part.zeros is None else part.zeros
        spread = [
            np.repeat(each, part.group or width, axis=1)[:, :width] for each in (zeros, part.scales)
        ]
        steps.append(part.numbers - spread[0])
        scales.append(spread[1])
    return np.concatenate(steps), np.concatenate(scales), [len(part.numbers) for part in parts]


def compare(got: tuple[Any, Any, int], rows: Any, want: tuple[Any, Any]) -> None:
    numbers, scales, group = got
    width = want[0].shape[1]
    np.testing.assert_array_equal(numbers[rows, :width], want[0])
    np.testing.assert_array_equal(np.repeat(scales, group, axis=1)[rows, :width], want[1])
    assert not numbers[rows, width:].any()


def test_the_engine_holds_the_integers_and_scales_of_the_files(
    built: tuple[str, dict[str, Written], Artifact],
) -> None:
    _, written, artifact = built
    for place, found in linears(artifact).items():
        layer, _, name = place.partition(".")
        if name == "gate_up":
            steps, scales, (half, _) = stacked(written, layer, ("mlp.gate_proj", "mlp.up_proj"))
            pairs = np.arange(len(found[0])).reshape(-1, 2, 16)
            for index, part in enumerate((slice(0, half), slice(half, None))):
                rows = pairs[:, index].ravel()[:half]
                compare(found, rows, (steps[part], scales[part]))
            continue
        names = {
            "qkv": tuple(f"self_attn.{each}_proj" for each in "qkv"),
            "o_proj": ("self_attn.o_proj",),
            "down_proj": ("mlp.down_proj",),
        }
        steps, scales, _ = stacked(written, layer, names[name])
        compare(found, slice(0, len(steps)), (steps, scales))


def test_native_logits_are_those_of_the_reference(
    built: tuple[str, dict[str, Written], Artifact],
) -> None:
    _, _, artifact = built
    executor = targets.open_executor(artifact)
    try:
        got = PagedRunner(executor).whole(TOKENS[:24])
    finally:
        executor.close()
    want = PlanRunner(artifact).logits(TOKENS[:24])
    np.testing.assert_allclose(got, want, rtol=0, atol=0.02 * np.abs(want).max())


def test_the_manifest_says_whose_integers_they_are(
    built: tuple[str, dict[str, Written], Artifact],
) -> None:
    requested, written, artifact = built
    (engine,) = artifact.manifest.engines
    assert engine.requested == requested
    name = requested.partition(" ")[0].partition("-")[0]
    assert {engine.realized[key] for key in written} == {name}
    assert requested in dict(manifest_rows(artifact.manifest))["engine"]
    assert artifact.manifest.kv.groups[0].dtype == "bfloat16"


@pytest.mark.parametrize(
    ("dtype", "realized", "said"),
    [
        ("float16", "float32", "all else float32"),
        ("float32", "float32", "all else float32"),
        ("bfloat16", "bfloat16", "bfloat16 weights of other layers, whose activations"),
    ],
)
def test_head_and_table_stay_as_they_are_stored(
    dtype: str, realized: str, said: str, tmp_path: Path
) -> None:
    write_gptq(tmp_path / "m", dtype=dtype)
    (engine,) = compile_model(tmp_path / "m", tmp_path / "a").manifest.engines
    assert engine.realized["model.embed_tokens.weight"] == realized
    assert said in engine.compute
    assert "int4 weights with a half-precision scale per 32 inputs" in engine.compute


@pytest.mark.parametrize(
    "write",
    [
        write_packed,
        write_awq,
        write_w8a8,
        lambda p: write_gptq(p, group=128, dtype="bfloat16"),
        lambda p: write_gptq(p, bits=8),
    ],
)
def test_answers_are_those_of_the_weights_that_the_files_stand_for(
    write: Callable[[Path], dict[str, Written]], tmp_path: Path
) -> None:
    """All targets round rows to int8, so answers are near those of the same numbers in float32."""
    rows = {}
    for target in ("cpu", "portable"):
        write(tmp_path / "m")
        built = compile_model(
            tmp_path / "m",
            tmp_path / target,
            target=target,
            max_num_seqs=64,
            allow_fallback=target == "portable",  # keeps 4 bits in 8
        )
        rows[target] = answers(built, target)
    in_float(tmp_path / "m", write(tmp_path / "m"))
    rows["float32"] = answers(compile_model(tmp_path / "m", tmp_path / "f", max_num_seqs=64), "cpu")
    for target in ("cpu", "portable"):
        assert np.corrcoef(rows[target].ravel(), rows["float32"].ravel())[0, 1] > 0.995


def answers(built: Artifact, target: str) -> Any:
    executor = targets.open_executor(built, target=target)
    rows = PagedRunner(executor).whole(TOKENS)
    executor.close()
    return rows


def in_float(folder: Path, written: dict[str, Written]) -> None:
    """Make a quantized checkpoint one of floats."""
    path, config = folder / "model.safetensors", folder / "config.json"
    layers = {name.removesuffix(".weight") for name in written}
    arrays = {
        name: value
        for name, value in load_file(path).items()
        if name.rpartition(".")[0] not in layers
    }
    save_file(arrays | {name: each.floats() for name, each in written.items()}, path)
    content = json.loads(config.read_text())
    del content["quantization_config"]
    config.write_text(json.dumps(content))


def test_portable_holds_the_scales_of_the_files_in_groups_that_it_has(tmp_path: Path) -> None:
    written = write_gptq(tmp_path / "m", group=128, intermediate_size=160)
    built = compile_model(tmp_path / "m", tmp_path / "a", target="portable", allow_fallback=True)
    (engine,) = built.manifest.engines
    arrays = load_file(built.path(str(engine.weights)))
    for name, want in written.items():
        count = -(-want.numbers.shape[1] // 64)
        scales = arrays[f"{name}.scale"].reshape(len(want.numbers), count)
        np.testing.assert_array_equal(scales, np.repeat(want.scales, 2, axis=1)[:, :count])
        blocks = arrays[f"{name}.blocks"].reshape(len(want.numbers), -1).astype(int) - 128
        np.testing.assert_array_equal(blocks[:, : want.numbers.shape[1]], want.numbers)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (TargetOptions(quant="int8"), "format int8: the checkpoint is quantized already, to int4,"),
        (TargetOptions(quant="int4", group=64), "format int4, --group 64: .* to int4,"),
        (TargetOptions(dtype="bfloat16"), "--dtype bfloat16: .* leave it out"),
        (TargetOptions(quant="uint4"), "format uint4"),
    ],
)
def test_nothing_is_quantized_twice(options: TargetOptions, named: str, tmp_path: Path) -> None:
    write_gptq(tmp_path)
    with pytest.raises(UnsupportedError, match=named):
        pipeline.plan(CompileRequest(str(tmp_path), options=options))


@pytest.mark.parametrize(
    "options", [TargetOptions(quant="int4"), TargetOptions(quant="int4", group=32)]
)
def test_the_flag_that_says_what_it_is_may_stand(options: TargetOptions, tmp_path: Path) -> None:
    write_gptq(tmp_path)
    assert pipeline.plan(CompileRequest(str(tmp_path), options=options)).imported is not None


@pytest.mark.parametrize(("target", "group"), [("cpu", 16), ("portable", 48)])
def test_groups_that_a_target_lacks_are_refused_with_those_it_has(
    target: str, group: int, tmp_path: Path
) -> None:
    write_gptq(tmp_path, group=group)
    with pytest.raises(UnsupportedError, match=f"groups of {group}.*supported: 32, 64"):
        pipeline.plan(CompileRequest(str(tmp_path), targets=(target,)))


def test_the_plan_says_what_the_checkpoint_is_and_how_large(tmp_path: Path) -> None:
    write_gptq(tmp_path / "tiny", group=64)
    plan = pipeline.plan(CompileRequest(str(tmp_path / "tiny")))
    assert plan.default_name == "tiny-int4-g64-tp1"
    assert "int4-g64, as in the checkpoint (gptq)" in dict(plan_rows(plan))["precision"]
    built = pipeline.build(plan, tmp_path / "a", progress=Reports())
    arrays = load_file(built.path("weights/cpu.rank0.safetensors")).values()
    assert plan.estimate.weights_bytes == pytest.approx(sum(a.nbytes for a in arrays), rel=0.03)


@pytest.mark.parametrize(("dtype", "count"), [("float32", 1), ("float16", 0), ("bfloat16", 0)])
def test_scales_that_cpu_rounds_are_told(dtype: str, count: int, tmp_path: Path) -> None:
    write_gptq(tmp_path, dtype=dtype)
    notes = pipeline.plan(CompileRequest(str(tmp_path))).notes
    assert len([note for note in notes if "keeps 11 bits" in note]) == count
    notes = pipeline.plan(CompileRequest(str(tmp_path), targets=("portable",))).notes
    assert not [note for note in notes if "keeps 11 bits" in note]


def test_layers_that_are_left_in_float_stay_so(tmp_path: Path) -> None:
    write_packed(tmp_path)
    path, config = tmp_path / "model.safetensors", tmp_path / "config.json"
    arrays = load_file(path)
    name = "model.layers.0.mlp.down_proj"
    arrays = {key: value for key, value in arrays.items() if not key.startswith(name)}
    shape = (64, 96)
    arrays[f"{name}.weight"] = np.full(shape, 0.01, arrays["model.norm.weight"].dtype)
    save_file(arrays, path)
    content = json.loads(config.read_text())
    content["quantization_config"]["ignore"].append("re:.*layers\\.0\\.mlp\\.down_proj")
    config.write_text(json.dumps(content))
    (engine,) = compile_model(tmp_path, tmp_path / "a").manifest.engines
    assert engine.realized[f"{name}.weight"] == "bfloat16"
    assert engine.realized["model.layers.1.mlp.down_proj.weight"] == "int4"
