"""`builder compile` with a format that is calibrated: what it refuses, and what it makes of a tiny model."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from builder.artifact.calibration_report import PLACE, read_calibration
from builder.artifact.store import open_artifact
from builder.cli.calibration import asking
from builder.cli.calibration.lines import calibration_rows
from builder.quant.calibration import requirements
from tests.compiling import compile_, leftovers
from tests.quantized_kv import write_fp8_with_kv

TEXT = "Rain fell on the roofs, and the gutters sang. " * 20


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "mine.txt"
    path.write_text(TEXT)
    return path


def test_options_of_calibration_go_with_a_format_that_is_calibrated(
    tiny_folder: Path, text: Path
) -> None:
    result = compile_(tiny_folder, "--int8", "--calib", text)
    assert result.exit_code == 2
    assert "have no effect here; those are fp8, nvfp4, int8-smoothquant, int4-awq" in result.stderr


def test_without_the_extra_nothing_is_built(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "LIBRARIES", ("no_such_library",))
    result = compile_(tiny_folder, "--nvfp4", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert 'pip install "forerun[quant]"' in result.stderr
    assert "--quant nvfp4-weight-only" in result.stderr
    assert leftovers(tmp_path) == []


def test_a_machine_that_is_too_small_is_told_so_before_anything_is_built(
    tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "LIBRARIES", ())
    monkeypatch.setattr(asking, "available_memory_bytes", lambda: 1 << 20)
    result = compile_(tiny_folder, "--fp8", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "fewer samples do not help" in result.stderr
    assert leftovers(tmp_path) == []


def test_what_is_calibrated_is_reported_and_leaves_no_checkpoint_behind(
    tiny_folder: Path, text: Path, tmp_path: Path
) -> None:
    destination = tmp_path / "out"
    result = compile_(tiny_folder, "--fp8", "--calib", text, "-o", destination)
    assert result.exit_code == 0, result.stderr
    assert "calibration  1 samples, 920 tokens of mine.txt" in result.stderr
    assert "warning: calibration has 920 tokens of text, fewer than 2048" in result.stderr
    assert "gutters" not in result.output
    artifact = open_artifact(destination)
    assert PLACE in artifact.manifest.files
    assert not any(name.startswith("calibrated") for name in artifact.manifest.files)
    report = read_calibration(destination)
    assert report is not None
    assert report.samples.warning is not None
    realized = artifact.manifest.engines[0].realized
    assert realized["model.layers.0.mlp.down_proj.weight"] == "fp8"
    assert sorted(artifact.manifest.source.files)[0] == "config.json"


def test_keys_and_values_are_calibrated_together_with_the_layers(
    tiny_folder: Path, text: Path, tmp_path: Path
) -> None:
    destination = tmp_path / "out"
    asked = ("--fp8", "--kv", "fp8", "--calib", text, "--target", "cpu", "-o", destination)
    result = compile_(tiny_folder, *asked)
    assert result.exit_code == 0, result.stderr
    (group,) = open_artifact(destination).manifest.kv.groups
    report = read_calibration(destination)
    assert report is not None
    found = {record.name: record.scale for record in report.quantizers}
    keys, values = (
        tuple(found[f"model.layers.{layer}.self_attn.{name}"] for layer in (0, 1))
        for name in ("k_proj.k", "v_proj.v")
    )
    assert (group.dtype, group.key_scales, group.value_scales) == ("fp8", keys, values)


def test_a_form_of_keys_and_values_that_is_not_calibrated_is_refused(tiny_folder: Path) -> None:
    result = compile_(tiny_folder, "--fp8", "--kv", "int8-static")
    assert result.exit_code == 2
    assert "--kv int8-static is not calibrated; with format fp8 there is --kv fp8" in result.stderr


def test_fixed_scales_that_nothing_gives_are_refused_before_anything_is_built(
    tiny_folder: Path, tmp_path: Path
) -> None:
    result = compile_(tiny_folder, "--quant", "int8-static", "-o", tmp_path / "out")
    assert result.exit_code == 2
    assert "which the checkpoint lacks; --quant int8-smoothquant calibrates them" in result.stderr


def test_an_artifact_has_the_name_of_what_calibrated_it(
    tiny_folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = compile_(tiny_folder, "--quant", "int4-awq", "--calib", text)
    assert result.exit_code == 0, result.stderr
    assert "float32, quantization int4-awq-g32" in result.stderr
    (engine,) = open_artifact(tmp_path / "tiny-int4-awq-g32-tp1").manifest.engines
    assert engine.requested == "int4-awq-g32"
    assert set(engine.realized.values()) == {"int4", "float32"}


def test_formats_are_chosen_layer_by_layer_for_a_budget(
    tiny_folder: Path, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = compile_(tiny_folder, "--auto-quant", "6", "--calib", text)
    assert result.exit_code == 0, result.stderr
    assert "emulates fp8 and nvfp4" in result.stderr
    folder = tmp_path / "tiny-auto-6.0-bits-tp1"
    (engine,) = open_artifact(folder).manifest.engines
    report = read_calibration(folder)
    assert report is not None
    assert report.search is not None
    (row,) = calibration_rows(folder)
    assert re.match(r"auto \([45]\.\d\d of 6 bits: \d+ (nvfp4|fp8), \d+ ", row[1])
    assert engine.requested == "auto-6.0-bits"
    assert engine.emulated == ("fp8", "nvfp4")
    for layer, form in report.search.layers.items():
        assert engine.realized[f"{layer}.weight"] == form


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("--auto-quant", "6", "--fp8"), "one format at a time; given fp8 and auto"),
        (("--auto-quant", "4"), "4.0 is not in the range 4.5<=x<16.0"),
        (("--quant", "auto"), "unknown format 'auto'"),
        (("--auto-quant", "6", "--group", "64"), "fixes its groups"),
        (("--auto-quant", "6", "--target", "tensorrt:sm89"), "can't run format auto"),
    ],
)
def test_a_budget_goes_with_no_other_format(
    asked: tuple[str, ...], said: str, tiny_folder: Path
) -> None:
    result = compile_(tiny_folder, *asked)
    assert result.exit_code == 2
    assert said in result.stderr


def test_text_for_what_is_quantized_already_is_refused(text: Path, tmp_path: Path) -> None:
    model = with_fixed_scales(write_fp8_with_kv(tmp_path / "model"))
    refused = compile_(model, "--fp8", "--calib", text)
    assert refused.exit_code == 2
    assert "--calib has no effect on a checkpoint that is quantized already" in refused.stderr
    accepted = compile_(model, "--fp8", "-o", tmp_path / "out", "-q")
    assert accepted.exit_code == 0, accepted.stderr


def with_fixed_scales(model: Path) -> Path:
    """Make rows of fixed scales out of rows by token."""
    weights = model / "model.safetensors"
    tensors = load_file(weights)
    layers = [name for name in tensors if name.endswith("_proj.weight")]
    for name in layers:
        tensors[name.replace(".weight", ".input_scale")] = torch.tensor(0.01)
    save_file(tensors, weights, metadata={"format": "pt"})
    config = json.loads((model / "config.json").read_text())
    config["quantization_config"]["quant_algo"] = "FP8"
    (model / "config.json").write_text(json.dumps(config))
    return model
