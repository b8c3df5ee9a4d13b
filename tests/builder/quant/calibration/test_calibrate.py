"""Calibration of a tiny model with modelopt: its scales are modelopt's own, and the same samples give the same bytes."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from builder.artifact.calibration_report import CalibrationReport
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.tensors import Checkpoint
from builder.errors import BuildError
from builder.quant.calibration import calibrate as story
from builder.quant.calibration import measuring
from builder.quant.calibration.calibrate import Calibration, calibrate
from builder.quant.calibration.model import torch_model
from builder.quant.calibration.nvfp4_backend import rounded
from builder.quant.calibration.quiet import quiet
from builder.quant.calibration.samples import Batch, Samples
from builder.quant.calibration.watching import Found
from builder.quant.recipes import RECIPES
from tests.models import tiny_gguf, tiny_llama

Stages = list[tuple[str, int]]
DOWN = "model.layers.1.mlp.down_proj"


class Progress:
    """Notes the stages."""

    def __init__(self) -> None:
        self.stages: Stages = []

    def stage(self, name: str, total: int) -> None:
        self.stages.append((name, total))

    def advance(self, amount: int) -> None:
        pass


def some_samples(count: int = 12) -> Samples:
    random = np.random.default_rng(3)
    rows = [tuple(map(int, random.integers(0, 256, 40))) for _ in range(count)]
    return Samples("random", "0" * 64, tuple(rows))


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_llama(tmp_path_factory.mktemp("source") / "tiny")


Calibrated = Callable[[str], tuple[Checkpoint, CalibrationReport, Path]]


@pytest.fixture(scope="module")
def calibrated(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    """Calibrate the tiny model to a format, once for all tests."""
    made: dict[str, tuple[Checkpoint, CalibrationReport, Path]] = {}

    def make(name: str) -> tuple[Checkpoint, CalibrationReport, Path]:
        if name not in made:
            group = 32 if RECIPES[name].groups else 0
            folder = tmp_path_factory.mktemp(name) / "out"
            asked = Calibration(name, some_samples(), group=group)
            made[name] = (
                *calibrate(open_checkpoint(str(source)), asked, folder, Progress()),
                folder,
            )
        return made[name]

    return make


@pytest.mark.parametrize(
    ("name", "form", "group"),
    [
        ("fp8", "fp8", 0),
        ("nvfp4", "nvfp4", 16),
        ("int8-smoothquant", "int8", 0),
        ("int4-awq", "int4", 32),
    ],
)
def test_what_is_calibrated_is_near_the_weights_and_says_its_format(
    calibrated: Calibrated, source: Path, name: str, form: str, group: int
) -> None:
    checkpoint, report, _ = calibrated(name)
    weights = checkpoint.quantized
    assert {weight.format for weight in weights.values()} == {form}
    assert {weight.group for weight in weights.values()} == {group}
    assert len(weights) == 14
    assert report.format == name
    if name in ("fp8", "nvfp4"):  # the others are smoothed: other numbers, the same products
        own = open_checkpoint(str(source)).tensors[f"{DOWN}.weight"].read()
        error = np.abs(weights[f"{DOWN}.weight"].dequantize() - own).max() / np.abs(own).max()
        assert error < (0.04 if name == "fp8" else 0.2)


def test_scales_are_the_largest_magnitude_over_what_the_format_reaches(
    calibrated: Calibrated,
) -> None:
    for name, reach in (("fp8", 448), ("nvfp4", 6 * 448)):
        checkpoint, report, _ = calibrated(name)
        found = {record.name: record for record in report.quantizers}
        record = found[f"{DOWN}.input"]
        scales = checkpoint.quantized[f"{DOWN}.weight"].row_scales
        assert scales.fixed is not None
        assert record.scale == pytest.approx(record.amax / reach, rel=1e-6)
        assert float(scales.fixed()) == record.scale
        assert record.tokens == report.samples.num_measured == 480
        assert found[f"{DOWN}.weight"].clipped == 0


def test_the_same_samples_give_the_same_bytes(
    calibrated: Calibrated, source: Path, tmp_path: Path
) -> None:
    _, report, folder = calibrated("fp8")
    asked = Calibration("fp8", some_samples())
    _, again = calibrate(open_checkpoint(str(source)), asked, tmp_path / "out", Progress())
    weights = "model.safetensors"
    assert (tmp_path / "out" / weights).read_bytes() == (folder / weights).read_bytes()
    assert again == report


def test_samples_in_a_row_do_not_see_each_other(source: Path) -> None:
    import torch  # noqa: PLC0415 (takes seconds: only for this test)

    with quiet():
        model = torch_model(open_checkpoint(str(source)))
    first, second = torch.arange(10), torch.arange(50, 65)
    places = torch.cat([torch.arange(10), torch.arange(15)])[None]
    with torch.inference_mode():
        packed = model(torch.cat([first, second])[None], position_ids=places, use_cache=False)
        alone = model(second[None], use_cache=False)
    assert torch.allclose(packed.logits[:, 10:], alone.logits, atol=1e-4)


def test_a_gguf_file_gives_the_same_torch_model(source: Path, tmp_path: Path) -> None:
    with quiet():
        ours = torch_model(open_checkpoint(str(tiny_gguf(tmp_path / "tiny.gguf")))).state_dict()
        theirs = torch_model(open_checkpoint(str(source))).state_dict()
    assert ours.keys() == theirs.keys()
    assert all((ours[name] == theirs[name]).all() for name in theirs)


def test_nvfp4_rounds_ties_to_even_and_zeros_to_zeros() -> None:
    import torch  # noqa: PLC0415 (takes seconds: only for this test)

    ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0, 6.0, -0.75, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]
    even = [0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0, 6.0, -1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0]
    amax = torch.tensor(6.0 * 448)  # a scale of the tensor of 1, and of the group of 1
    assert rounded(torch.tensor([ties]), amax).tolist() == [even]
    assert rounded(torch.zeros(2, 16), torch.tensor(0.0)).abs().sum() == 0


def test_a_layer_that_saw_no_token_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_nothing(model: Any, runs: list[Batch], progress: Any) -> None:
        pass

    monkeypatch.setattr(measuring, "run", run_nothing)
    asked = Calibration("fp8", some_samples(1))
    with pytest.raises(BuildError, match=r"no token of the samples reached model\.layers\.0"):
        calibrate(open_checkpoint(str(source)), asked, tmp_path / "out", Progress())


def test_the_export_may_free_each_weight_that_it_replaces(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a model is there twice: 0.9 GiB more for 1.07 billion parameters."""
    held: list[object] = []
    export = story._export

    def look(model: Any, folder: Path) -> None:
        held.extend(each for each in gc.get_objects() if isinstance(each, Found))
        export(model, folder)

    monkeypatch.setattr(story, "_export", look)
    asked = Calibration("fp8", some_samples(1))
    calibrate(open_checkpoint(str(source)), asked, tmp_path / "out", Progress())
    assert held == []


def test_nothing_is_printed(
    source: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    progress = Progress()
    calibrate(open_checkpoint(str(source)), Calibration("fp8", some_samples(1)), tmp_path, progress)
    assert capfd.readouterr() == ("", "")
    assert [name for name, _ in progress.stages] == [
        "load model for calibration",
        "calibrate, pass 1",
        "count clipping",
        "export calibrated checkpoint",
    ]
