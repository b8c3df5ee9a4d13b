"""Compiling GGUF files whose blocks a format has: the engine's numbers are those of the file."""

from pathlib import Path

import numpy as np
import pytest

from builder import pipeline
from builder.checkpoint.open import open_checkpoint
from builder.errors import UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from builder.targets.cpu.plan import Code
from tests.builder.targets.cpu.plan_runner import PlanRunner
from tests.built import compile_model
from tests.models import tiny_gguf

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
    model = tiny_gguf(tmp_path / "m.gguf", stored="Q5_0")
    built = compile_model(model, tmp_path / "a", quant="int4")
    assert built.manifest.engines[0].requested == "int4"
