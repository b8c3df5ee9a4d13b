"""A search for formats: within its budget, one format for what must be one matrix, and reported as it was exported."""

from pathlib import Path

import numpy as np
import pytest

from builder.checkpoint.open import open_checkpoint
from builder.quant.calibration.calibrate import Calibration, calibrate
from builder.quant.calibration.samples import Samples
from tests.built import Reports
from tests.models import tiny_llama

BITS = {"nvfp4": 4.5, "fp8": 8.0, "float": 16.0}
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


@pytest.mark.parametrize("bits", [6.0, 11.0])
def test_formats_are_within_the_budget_and_agree_with_the_checkpoint(
    bits: float, tmp_path: Path
) -> None:
    random = np.random.default_rng(3)
    rows = tuple(tuple(map(int, random.integers(0, 256, 60))) for _ in range(20))
    source = open_checkpoint(str(tiny_llama(tmp_path / "tiny", tie_word_embeddings=False)))
    samples, progress = Samples("random", "0" * 64, rows), Reports()
    asked = Calibration("auto", samples, "fp8", bits=bits)
    checkpoint, report = calibrate(source, asked, tmp_path / "out", progress)
    search = report.search
    assert search is not None
    sizes = {name: source.tensors[f"{name}.weight"].shape for name in search.layers}
    assert len(sizes) == 14
    total = sum(wide * tall for wide, tall in sizes.values())
    spent = sum(
        sizes[name][0] * sizes[name][1] * BITS[form] for name, form in search.layers.items()
    )
    assert search.asked_bits == bits
    assert search.bits == pytest.approx(spent / total)
    assert bits - 2 < search.bits <= bits
    assert len(set(search.layers.values())) > 1
    for name, form in search.layers.items():
        weight = checkpoint.quantized.get(f"{name}.weight")
        assert form == ("float" if weight is None else weight.format)
        parent, _, own = name.rpartition(".")
        for group in TOGETHER:
            if own in group:
                assert {search.layers[f"{parent}.{part}"] for part in group} == {form}
    assert checkpoint.kv is not None
    assert len(checkpoint.kv.keys) == 2
    assert all(record.tokens > 0 for record in report.quantizers)
    assert "weigh errors of layers" in [name for name, _ in progress.stages]


def test_the_same_samples_give_the_same_choice(tmp_path: Path) -> None:
    rows = (tuple(range(1, 200)),)
    source = open_checkpoint(str(tiny_llama(tmp_path / "tiny")))
    asked = Calibration("auto", Samples("one", "0" * 64, rows), bits=6.0)
    first, again = (
        calibrate(source, asked, tmp_path / name, Reports())[1] for name in ("first", "again")
    )
    assert first == again
