"""Formats that target cpu emulates: the weights are exactly the format's, rows are rounded whole and to the bit."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder.artifact.store import Artifact
from builder.checkpoint.rows import FIXED
from builder.quant import FORMATS, is_emulated
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.panels import WIDENED
from builder.targets.cpu.plan import Code, Epilogue, Form
from plugins.quantize.reference import quantize_dynamic
from tests.builder.targets.cpu.plan_runner import (
    BUFFER,
    HEADER,
    NAMES,
    OPERATION,
    PlanRunner,
    Weight,
)
from tests.builder.targets.cpu.test_bad_plans import PlanBytes
from tests.builder.targets.cpu.variants import activations, compile_variant, layer_norms, ungated
from tests.built import compile_model
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

EMULATED = [
    name for name, rules in FORMATS.items() if is_emulated(name, "cpu") and rules.ROWS not in FIXED
]
"""Those that need no calibration."""
LAYER = "model.layers.1.self_attn.o_proj.weight"
SIZES = {"hidden_size": 48, "head_dim": 12, "intermediate_size": 90}


@pytest.mark.parametrize("name", EMULATED)
def test_weights_are_to_the_bit_what_the_format_unpacks(name: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", **SIZES)
    built = compile_model(model, tmp_path / "built", quant=name)
    (engine,) = built.manifest.engines
    stored = load_file(built.path(str(engine.weights)))[LAYER]
    (found,) = [weight for weight in PlanRunner(built).weights if _holds(weight, stored)]
    assert found.form in WIDENED
    got, _ = found.matrix(1)
    (source,) = model.glob("*.safetensors")
    rules = FORMATS[name]
    want = rules.unpack(*rules.pack(load_file(source)[LAYER].astype(np.float32)))
    np.testing.assert_array_equal(got, want)


def _holds(weight: Weight, stored: np.ndarray) -> bool:
    return weight.data.tobytes() == stored.tobytes()


@pytest.fixture(scope="module")
def fp8(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    model = tiny_llama(tmp_path_factory.mktemp("model"), **SIZES)
    return compile_model(model, tmp_path_factory.mktemp("built") / "out", quant="fp8-dynamic")


def test_rows_are_rounded_by_norms_and_behind_what_writes_parts_of_a_row(fp8: Artifact) -> None:
    runner = PlanRunner(fp8)
    forms = [buffer[1] for buffer in runner.buffers]
    rounding = [op["code"] for op in runner.operations if forms[op["output"]] == Form.E4M3]
    assert rounding == [Code.RMS_NORM, Code.QUANTIZE] * 4  # before qkv, o, gate and up, down
    for op in runner.operations:
        if op["code"] == Code.LINEAR and op["rows"] == 0:
            assert forms[op["input"]] == Form.E4M3


def test_activations_without_a_gate_and_layer_norms_are_rounded_too(tmp_path: Path) -> None:
    rewrites = [layer_norms, activations("Gelu"), ungated]
    built = compile_variant(tmp_path, rewrites, sizes=SIZES, quant="fp8-dynamic", max_num_seqs=64)
    runner, tokens = PlanRunner(built), list(range(60))
    for before, op in zip(runner.operations, runner.operations[1:], strict=False):
        if before["epilogue"] == Epilogue.ACTIVATE:
            assert (op["code"], op["input"]) == (Code.QUANTIZE, before["output"])
    executor = CpuExecutor(built, built.manifest.engines[0], num_threads=2)
    got, want = PagedRunner(executor).whole(tokens), runner.logits(tokens)
    executor.close()
    # A number that lies between two steps of a rounding may go either way.
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.998
    assert np.abs(got - want).mean() < 0.06 * want.std()


@pytest.mark.parametrize(
    "name", ["fp8-weight-only", "int8-weight-only", "nvfp4-weight-only", "mxfp4"]
)
def test_rows_of_weight_only_formats_are_not_rounded(name: str, tmp_path: Path) -> None:
    built = compile_model(tiny_llama(tmp_path / "model"), tmp_path / "built", quant=name)
    assert {buffer[1] for buffer in PlanRunner(built).buffers} == {Form.FLOAT32}


def test_attention_that_writes_to_such_rows_is_refused(fp8: Artifact, tmp_path: Path) -> None:
    plan = PlanBytes(fp8)
    plan.set(Code.ATTENTION, "output", plan.get(Code.QUANTIZE, "output"))
    assert "operation" in plan.refused(tmp_path)


def test_keys_and_values_are_float32_unless_asked(fp8: Artifact, tmp_path: Path) -> None:
    assert fp8.manifest.kv.groups[0].dtype == "float32"
    model = tiny_llama(tmp_path / "model")
    built = compile_model(model, tmp_path / "built", quant="fp8-dynamic", kv="int8")
    assert built.manifest.kv.groups[0].dtype == "int8"


def with_spread_norms(folder: Path) -> Path:
    """Give a model whose head passes the normed rows on, and whose norm spreads them over many sizes."""
    model = tiny_llama(folder, tie_word_embeddings=False)
    (file,) = model.glob("*.safetensors")
    tensors = load_file(file)
    spread = np.exp(np.random.default_rng(0).normal(size=64) * 3)
    tensors["model.norm.weight"] = spread.astype(tensors["model.norm.weight"].dtype)
    head = tensors["lm_head.weight"]
    tensors["lm_head.weight"] = np.eye(*head.shape, dtype=head.dtype)
    save_file(tensors, file, {"format": "pt"})
    return model


def rounding_the_last_norm(artifact: Artifact, folder: Path) -> Artifact:
    """Copy an artifact, with a plan whose last norm writes E4M3."""
    (record,) = artifact.manifest.engines
    plan = bytearray(artifact.path(record.path).read_bytes())
    runner = PlanRunner(artifact)
    norm = [op for op in runner.operations if op["code"] == Code.RMS_NORM][-1]
    place = HEADER.size + BUFFER.size * norm["output"]
    rows, form, width, *rest = BUFFER.unpack_from(plan, place)
    assert (rows, form) == (1, Form.FLOAT32)
    BUFFER.pack_into(plan, place, rows, Form.E4M3, width, *rest)
    assert len(NAMES) == len(OPERATION.unpack_from(plan, len(plan) - OPERATION.size))
    for name in (record.path, str(record.weights)):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(artifact.path(name).read_bytes())
    (folder / record.path).write_bytes(plan)
    return Artifact(folder, artifact.manifest)


@pytest.fixture(scope="module")
def normed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    """Give an artifact whose logits are normed rows, and one where these are rounded."""
    model = with_spread_norms(tmp_path_factory.mktemp("model"))
    plain = compile_model(model, tmp_path_factory.mktemp("plain") / "out", max_num_seqs=256)
    return plain, rounding_the_last_norm(plain, tmp_path_factory.mktemp("rounding"))


@pytest.fixture(params=native.builds())
def executors(
    normed: tuple[Artifact, Artifact], request: pytest.FixtureRequest
) -> Iterator[list[CpuExecutor]]:
    record = normed[0].manifest.engines[0]
    opened = [CpuExecutor(one, record, num_threads=2, build=request.param) for one in normed]
    yield opened
    for executor in opened:
        executor.close()


def test_a_row_is_rounded_to_the_bits_of_the_reference(executors: list[CpuExecutor]) -> None:
    plain, rounding = (PagedRunner(executor).whole(list(range(150))) for executor in executors)
    want = quantize_dynamic(plain[:, :64])
    peaks = np.abs(want).max(axis=1, keepdims=True)
    assert (np.abs(want) < peaks / 448 * 2.0**-6).any()  # some lie below E4M3's normal numbers
    np.testing.assert_array_equal(rounding[:, :64], want)


def test_rounded_rows_depend_on_no_other_row(executors: list[CpuExecutor]) -> None:
    runner, tokens = PagedRunner(executors[1]), list(range(150))
    for chunk in (1, 7, 64):
        np.testing.assert_array_equal(runner.whole(tokens, chunk), runner.whole(tokens))
