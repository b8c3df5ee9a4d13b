"""Keys and values of a checkpoint that brings scales along: stored as it says, unless options say otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from builder import pipeline
from builder.checkpoint.kv_scales import KVScales
from builder.checkpoint.open import open_checkpoint
from builder.cli.main import main
from builder.errors import CheckpointError, UnsupportedError
from builder.pipeline import CompileRequest
from builder.targets.compiler import TargetOptions
from tests.built import compile_model
from tests.models import tiny_llama
from tests.quantized_kv import kv_scale, write_fp8_with_kv


def request_of(
    model: Path, *, targets: tuple[str, ...] = ("cpu",), **options: str
) -> CompileRequest:
    return CompileRequest(str(model), targets, TargetOptions(**options))


@pytest.mark.parametrize("asked", [None, "fp8"])
def test_the_checkpoints_form_and_scales_are_taken(asked: str | None, tmp_path: Path) -> None:
    model = write_fp8_with_kv(tmp_path / "model")
    artifact = compile_model(model, tmp_path / "built", kv=asked)
    (group,) = artifact.manifest.kv.groups
    assert group.dtype == "fp8"
    assert group.key_scales == (kv_scale(0, 0), kv_scale(1, 0))
    assert group.value_scales == (kv_scale(0, 1), kv_scale(1, 1))
    shown = CliRunner().invoke(main, ["inspect", str(tmp_path / "built")]).stdout
    assert "fp8 with scales of 2 layers (keys x 0.0469 to 0.0625, values x 0.00781 to" in shown


def test_int8_scales_are_those_of_int8_static(tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path, "compressed-tensors", {"type": "int"})
    (group,) = pipeline.plan(request_of(tmp_path)).kv.groups
    assert group.dtype == "int8-static"
    assert group.key_scales == (kv_scale(0, 0), kv_scale(1, 0))


@pytest.mark.parametrize("kv", ["float32", "bfloat16", "int8"])
def test_another_form_may_be_asked_for_and_the_plan_says_so(kv: str, tmp_path: Path) -> None:
    plan = pipeline.plan(request_of(write_fp8_with_kv(tmp_path), kv=kv))
    (group,) = plan.kv.groups
    assert (group.dtype, group.key_scales, group.value_scales) == (kv, (), ())
    assert (
        f"the checkpoint's scales for keys and values in fp8 are not used: --kv {kv}" in plan.notes
    )


def test_a_form_that_scales_are_not_of_is_refused(tmp_path: Path) -> None:
    write_fp8_with_kv(tmp_path)
    with pytest.raises(UnsupportedError, match=r"--kv int8-static .* has KV scales of fp8"):
        pipeline.plan(request_of(tmp_path, kv="int8-static"))


@pytest.mark.parametrize("kv", ["fp8", "int8-static"])
def test_fixed_scales_that_a_checkpoint_lacks_are_refused(kv: str, tmp_path: Path) -> None:
    model = tiny_llama(tmp_path)
    with pytest.raises(UnsupportedError, match=f"--kv {kv} .* no KV scales: .* --fp8 --kv fp8"):
        pipeline.plan(request_of(model, kv=kv))


@pytest.mark.parametrize("targets", [("portable",), ("cpu", "portable")])
def test_a_target_without_fixed_scales_refuses_them(
    targets: tuple[str, ...], tmp_path: Path
) -> None:
    said = "portable does not support --kv fp8; supported: float32"
    model = tiny_llama(tmp_path)
    checkpoint = replace(
        open_checkpoint(str(model)), kv=KVScales("fp8", keys=(1.0, 1.0), values=(1.0, 1.0))
    )
    with pytest.raises(UnsupportedError, match=said):
        pipeline.plan_checkpoint(checkpoint, request_of(model, targets=targets))
    plan = pipeline.plan_checkpoint(checkpoint, request_of(model, targets=targets, kv="float32"))
    assert plan.kv.groups[0].key_scales == ()


def test_scales_of_more_layers_than_the_config_has_are_refused(tmp_path: Path) -> None:
    config = write_fp8_with_kv(tmp_path, num_layers=3) / "config.json"
    config.write_text(
        config.read_text().replace('"num_hidden_layers": 3', '"num_hidden_layers": 2')
    )
    with pytest.raises(CheckpointError, match=r"of 3 layers, by config\.json there are 2"):
        pipeline.plan(request_of(tmp_path))


def test_bits_of_fp8_keys_and_values_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    compile_model(write_fp8_with_kv(tmp_path / "model"), tmp_path / "built", max_seq_len=256)
    command = ["verify", str(tmp_path / "built"), "--determinism", "--max-tokens", "48"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.output
