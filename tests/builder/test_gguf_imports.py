"""Compiling GGUF files whose blocks a format has: the engine's numbers are those of the file."""

from pathlib import Path

import numpy as np
import pytest

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.sources.gguf_file import read_gguf
from builder.errors import UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from builder.targets.cpu.plan import Code
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import smollm2_gguf, tiny_gguf

DOWN = "model.layers.1.mlp.down_proj.weight"
LAST_OF_THE_LAYERS = -2
"""Linear operation before the head: the down projection of the last layer."""


@pytest.mark.parametrize(("stored", "form"), [("Q8_0", "int8"), ("Q5_0", "int8"), ("Q4_0", "int4")])
def test_blocks_become_the_engines_numbers(stored: str, form: str, tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored=stored)
    built = compile_model(model, tmp_path / "a")
    (engine,) = built.manifest.engines
    assert engine.requested.endswith(f" as in the checkpoint (GGUF {stored})")
    assert set(engine.realized.values()) == {form}
    runner = PlanRunner(built)
    operation = [op for op in runner.operations if op["code"] == Code.LINEAR][LAST_OF_THE_LAYERS]
    weight = runner.weights[operation["weight"]]
    numbers, scales = weight.matrix(operation["scale"])
    got = numbers * np.repeat(scales, weight.group, axis=1)
    want = open_checkpoint(str(model)).tensors[DOWN].read()
    np.testing.assert_array_equal(got[: len(want), : want.shape[1]], want)


def test_a_table_in_other_blocks_is_rounded_and_the_plan_says_so(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored="Q4_0", kinds={"token_embd.weight": "Q5_1"})
    plan = pipeline.plan(CompileRequest(str(model)))
    assert "model.embed_tokens.weight is Q5_1, which is rounded to int8-g32" in plan.notes
    built = compile_model(model, tmp_path / "a")
    assert built.manifest.engines[0].realized["model.embed_tokens.weight"] == "int8"


def test_blocks_are_never_quantized_again(tmp_path: Path) -> None:
    model = str(tiny_gguf(tmp_path / "m.gguf", stored="Q8_0"))
    pipeline.plan(CompileRequest(model, options=TargetOptions(quant="int8")))
    with pytest.raises(UnsupportedError, match=r"quantized already, to int8-g32"):
        pipeline.plan(CompileRequest(model, options=TargetOptions(quant="int4")))


def test_other_blocks_are_compiled_in_any_format(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored="Q5_1")
    built = compile_model(model, tmp_path / "a", quant="int4")
    assert built.manifest.engines[0].requested == "int4"


@pytest.mark.parametrize(
    ("quant", "fate"),
    [
        ("none", "they are dequantized to float32, which loses nothing"),
        ("int4", "and then rounded again, to int4; without a format they become float32"),
    ],
)
def test_the_plan_says_what_becomes_of_blocks_that_no_format_holds(
    quant: str, fate: str, tmp_path: Path
) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored="Q4_1", kinds={"token_embd.weight": "Q8_0"})
    plan = pipeline.plan(CompileRequest(str(model), options=TargetOptions(quant=quant)))
    (note,) = [note for note in plan.notes if "blocks" in note]
    assert "(14 x Q4_1, 1 x Q8_0)" in note
    assert fate in note


def test_plain_floats_and_blocks_that_are_kept_need_no_note(tmp_path: Path) -> None:
    for stored in ("F16", "Q8_0"):
        model = tiny_gguf(tmp_path / f"{stored}.gguf", stored=stored)
        plan = pipeline.plan(CompileRequest(str(model)))
        assert not [note for note in plan.notes if "blocks" in note]


def test_the_manifest_names_the_block_type_beside_the_realized_precision(tmp_path: Path) -> None:
    model = tiny_gguf(tmp_path / "m.gguf", stored="Q4_1", kinds={"token_embd.weight": "Q8_0"})
    manifest = compile_model(model, tmp_path / "a", quant="int8").manifest
    assert manifest.source.stored[DOWN] == "Q4_1"
    assert manifest.source.stored["model.embed_tokens.weight"] == "Q8_0"
    assert manifest.engines[0].realized[DOWN] == "int8"
    assert not [name for name in manifest.source.stored if "norm" in name]


@pytest.mark.model
def test_a_real_file_of_q4_1_fits_no_format_and_int8_is_fifteen_times_nearer_than_uint4() -> None:
    """Why Q4_1 is not kept: its minimum is a whole number of steps in 1 of 369 blocks."""
    stored = read_gguf(smollm2_gguf()).tensors["blk.0.ffn_down.weight"]
    blocks = np.asarray(stored.raw).reshape(-1, 20)
    step, least = (
        np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float64) for at in (0, 2)
    )
    codes = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
    weights = codes * step + least
    zeros = -least / step
    fitting = np.abs(zeros - np.rint(zeros)) < 1e-9
    assert fitting.mean() < 0.01
    scales = np.abs(weights).max(axis=1, keepdims=True) / 127
    lost = {
        "int8": (np.rint(weights / scales) * scales - weights) / step,
        "uint4": zeros - np.clip(np.rint(zeros), 0, 15),
    }
    rms = {name: np.sqrt((error**2).mean()) for name, error in lost.items()}
    assert rms["int8"] < 0.022
    assert rms["uint4"] > 0.27
