"""Keys and values in 8 bits with fixed scales of their layers: rounding, bits, and what the engine makes of them."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from builder import pipeline
from builder.artifact.config import KVGroup
from builder.artifact.store import Artifact
from builder.checkpoint.kv_scales import KVScales
from builder.checkpoint.open import open_checkpoint
from builder.limits import LimitOptions
from builder.pipeline import CompileRequest
from builder.targets.cpu import native
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.cpu.plan import Code
from plugins.paged_attention.reference import round_to_fp8, round_to_int8_static
from tests.builder.targets.cpu.drawing import draw
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.builder.targets.cpu.test_bad_plans import PlanBytes
from tests.built import Reports
from tests.models import tiny_llama
from tests.paged_runner import PagedRunner

FORMS = ("fp8", "int8-static")
STEPS = {"fp8": 448, "int8-static": 127}
REACH = (9.0, 7.0), (2.5, 3.5)
"""Of keys and values of the layers; some are beyond it."""
INFINITE = 7
"""A token whose keys are infinite in the first layer."""


def compile_fixed(model: Path, destination: Path, form: str, *, max_seq_len: int = 512) -> Artifact:
    """Compile a float checkpoint as if it had brought scales along."""
    keys, values = (tuple(float(np.float32(x / STEPS[form])) for x in reach) for reach in REACH)
    checkpoint = replace(open_checkpoint(str(model)), kv=KVScales(form, keys, values))
    limits = LimitOptions(max_num_seqs=256, max_seq_len=max_seq_len)
    plan = pipeline.plan_checkpoint(checkpoint, CompileRequest(str(model), limits=limits))
    return pipeline.build(plan, destination, progress=Reports())


@pytest.fixture(scope="module", params=FORMS)
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    folder = tmp_path_factory.mktemp("fixed")
    model = tiny_llama(folder / "model", head_dim=20, num_attention_heads=6)  # padded to 32
    return compile_fixed(model, folder / "built", request.param)


@pytest.fixture(params=native.builds())
def executor(artifact: Artifact, request: pytest.FixtureRequest) -> Iterator[CpuExecutor]:
    executor = opened(artifact, build=request.param)
    yield executor
    executor.close()


def opened(artifact: Artifact, *, threads: int = 2, build: str = "") -> CpuExecutor:
    return CpuExecutor(artifact, artifact.manifest.engines[0], num_threads=threads, build=build)


def numbers() -> np.ndarray:
    draws = np.random.default_rng(0).normal(size=4000) * np.exp2(np.linspace(-14, 10, 4000))
    ties = (np.arange(-4000, 4000) / 8) * 0.25
    return np.concatenate([draws, ties, [0.0, 1e30, -1e30]]).astype(np.float32)


def test_fp8_numbers_are_those_of_a_cast_that_saturates() -> None:
    scale = float(np.float32(0.25))
    cast = np.clip(numbers() / np.float32(scale), -448, 448).astype(ml_dtypes.float8_e4m3fn)
    want = cast.astype(np.float64) * scale
    np.testing.assert_array_equal(round_to_fp8(numbers(), scale), want)


def test_rounding_is_off_by_half_a_step_at_most() -> None:
    scale = float(np.float32(0.013))
    inside = numbers()[np.abs(numbers()) < 127 * scale].astype(np.float64)
    error = np.abs(round_to_int8_static(inside, scale) - inside)
    assert error.max() <= scale * (0.5 + 1e-6)
    error = np.abs(round_to_fp8(inside, scale) - inside)
    bound = np.maximum(np.abs(inside) * 2.0**-4, scale * 2.0**-10)
    assert (error <= bound * (1 + 1e-6)).all()


@pytest.mark.parametrize("round_to", [round_to_fp8, round_to_int8_static])
def test_what_is_no_number_stays_none(round_to: object) -> None:
    assert callable(round_to)
    assert np.isnan(round_to(np.array([np.nan, np.inf, -np.inf]), 1.0)).all()


def test_a_token_takes_a_byte_a_number_and_nothing_else(artifact: Artifact) -> None:
    (group,) = artifact.manifest.kv.groups
    assert group.head_dim == 32
    assert group.bytes_per_token == 2 * 2 * group.num_kv_heads * 32
    assert KVGroup((0,), 1, 32, "int8").bytes_per_token == 2 * 36


def test_the_manifest_has_the_scales_of_each_layer(artifact: Artifact) -> None:
    (group,) = artifact.manifest.kv.groups
    steps = np.float32(STEPS[group.dtype])
    np.testing.assert_allclose(np.array(group.key_scales) * steps, REACH[0], rtol=1e-6)
    np.testing.assert_allclose(np.array(group.value_scales) * steps, REACH[1], rtol=1e-6)
    (record,) = artifact.manifest.engines
    assert "with fixed scales" in record.compute


def test_logits_equal_the_references(executor: CpuExecutor, artifact: Artifact) -> None:
    tokens, plain = draw(150), PlanRunner(artifact)
    got, want = PagedRunner(executor).whole(tokens), plain.logits(tokens)
    assert np.corrcoef(got.ravel(), want.ravel())[0, 1] > 0.999
    error = np.abs(got - want).mean()
    assert error < 0.01 * want.std()
    plain.round_kv = (lambda heads, _: heads,) * 2
    assert error < 0.5 * np.abs(got - plain.logits(tokens)).mean()


@pytest.mark.parametrize("chunk", [1, 3, 61])
def test_chunks_give_the_same_bits(executor: CpuExecutor, chunk: int) -> None:
    runner, tokens = PagedRunner(executor), draw(150)
    np.testing.assert_array_equal(runner.whole(tokens, chunk), runner.whole(tokens))


def test_a_row_has_the_same_bits_whatever_else_is_in_the_step(executor: CpuExecutor) -> None:
    runner = PagedRunner(executor)
    prompts = {str(length): draw(length, length) for length in (1, 100, 2, 50, 3, 33)}
    alone = {name: runner.whole(tokens) for name, tokens in prompts.items()}
    for (name, _), rows in zip(prompts.items(), runner.step(*prompts.items()), strict=True):
        np.testing.assert_array_equal(rows, alone[name])


@pytest.mark.parametrize("form", FORMS)
def test_threads_that_share_a_context_change_no_bit(form: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "model", max_position_embeddings=1100)
    artifact = compile_fixed(model, tmp_path / "built", form, max_seq_len=1100)  # five spans
    tokens = draw(1100)
    for build in native.builds():
        rows = []
        for threads in (1, 7):
            executor = opened(artifact, threads=threads, build=build)
            runner = PagedRunner(executor)
            chunks = [tokens[at : at + 200] for at in range(0, 1100, 200)]
            rows.append(np.concatenate([runner.step(("a", chunk))[0] for chunk in chunks]))
            executor.close()
        np.testing.assert_array_equal(rows[0], rows[1])


def test_what_a_former_owner_left_in_a_block_never_shows(executor: CpuExecutor) -> None:
    runner, tokens = PagedRunner(executor), draw(37)
    clean = runner.whole(tokens)
    for seed in range(2):
        runner.whole(draw(250, seed + 1))
        np.testing.assert_array_equal(runner.whole(tokens), clean)


@pytest.mark.parametrize("form", FORMS)
def test_keys_that_are_no_numbers_show_in_all_that_sees_them(form: str, tmp_path: Path) -> None:
    """One dimension, which one token alone has, makes its keys infinite; values stay what they are."""
    model = tiny_llama(tmp_path / "model", dtype="float32")
    weights = load_file(model / "model.safetensors")
    weights["model.embed_tokens.weight"][:, 5] = 0
    weights["model.embed_tokens.weight"][INFINITE, 5] = 1
    weights["model.layers.0.self_attn.k_proj.weight"][:, 5] = 3e38
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    artifact = compile_fixed(model, tmp_path / "built", form)
    tokens = [token if token != INFINITE else 8 for token in draw(24)]
    tokens[9] = INFINITE
    for build in native.builds():
        executor = opened(artifact, build=build)
        rows = PagedRunner(executor).whole(tokens, 1)
        executor.close()
        assert np.isfinite(rows[:9]).all()
        assert np.isnan(rows[9:]).all()


@pytest.mark.parametrize(
    ("place", "scale"),
    [("key_scale", 0.0), ("value_scale", np.nan), ("key_scale", 1e-39), ("value_scale", 1e37)],
)
def test_a_plan_with_a_scale_that_none_can_be_is_refused(
    place: str, scale: float, artifact: Artifact, tmp_path: Path
) -> None:
    plan = PlanBytes(artifact)
    bits = int(np.float32(scale).view(np.int32))
    for code in (Code.APPEND, Code.ATTENTION):
        plan.set(code, place, bits)
    assert "operation" in plan.refused(tmp_path)
