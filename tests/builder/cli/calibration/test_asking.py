"""`builder compile` with a format that is calibrated: what it refuses, and what it makes of a tiny model."""

from pathlib import Path

import pytest

from builder.artifact.calibration_report import PLACE, read_calibration
from builder.artifact.store import open_artifact
from builder.cli.calibration import asking
from builder.quant.calibration import requirements
from tests.compiling import compile_, leftovers

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
