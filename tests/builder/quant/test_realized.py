"""Requested and realized precision: a difference fails the build, or the manifest names it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.cli.inspect import engine_line
from builder.errors import UnsupportedError
from builder.quant.plan import Precision
from builder.quant.realized import fallbacks, refuse_fallbacks
from builder.targets.cpu import compile as cpu
from tests.built import compile_model
from tests.models import tiny_llama

LAYER = "model.layers.1.mlp.down_proj.weight"


def test_layers_that_a_plan_leaves_out_are_asked_for_in_float32() -> None:
    layers = {"a": Precision("int8", 64)}
    assert fallbacks(["a", "b"], layers, {"a": "int8", "b": "float32"}) == {}
    assert fallbacks(["a", "b"], layers, {"a": "int8", "b": "bfloat16"}) == {"b": "float32"}


def test_a_layer_that_no_engine_has_is_a_difference() -> None:
    found = fallbacks(["a"], {"a": Precision("fp8")}, {})
    assert found == {"a": "fp8"}
    with pytest.raises(UnsupportedError, match=r"target x realizes 1 x fp8 as nothing, first a; "):
        refuse_fallbacks(found, {}, "x")


@pytest.fixture
def falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let target cpu keep one layer in float32, whatever is asked for."""
    lower = cpu.lower

    def lowered(*arguments: Any) -> Any:
        plan = lower(*arguments)
        return replace(plan, realized=plan.realized | {LAYER: "float32"})

    monkeypatch.setattr(cpu, "lower", lowered)


@pytest.mark.usefixtures("falls_back")
def test_a_layer_that_falls_back_fails_the_build_and_is_named(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    with pytest.raises(UnsupportedError, match=rf"1 x int8 as float32, first {LAYER}; add --allow"):
        compile_model(model, tmp_path / "a", quant="int8")
    assert not (tmp_path / "a").exists()


@pytest.mark.usefixtures("falls_back")
def test_a_fallback_that_is_allowed_stands_in_the_manifest(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    built = compile_model(model, tmp_path / "a", quant="int8", allow_fallback=True)
    (engine,) = built.manifest.engines
    assert engine.fallbacks == {LAYER: "int8"}
    assert engine.realized[LAYER] == "float32"
    assert "(1 of them fell back from int8)" in engine_line(engine)


def test_portable_keeps_4_bits_in_8_only_where_that_is_allowed(tmp_path: Path) -> None:
    model = tiny_llama(tmp_path / "m")
    with pytest.raises(UnsupportedError, match=r"target portable realizes .* x int4 as int8"):
        compile_model(model, tmp_path / "a", target="portable", quant="int4")
    built = compile_model(
        model, tmp_path / "b", target="portable", quant="int4", allow_fallback=True
    )
    assert set(built.manifest.engines[0].fallbacks.values()) == {"int4"}
