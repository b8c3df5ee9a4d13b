"""The comparison of number formats: which there are, what a process takes, how texts are held against float32, and what is told."""

import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import formats
import numpy as np
import pytest
from likelihood.readings import Float32
from likelihood.text import Tokens
from number_formats import catalogue, judging, making
from number_formats.modelopt_model import float_model, modelopt_model
from number_formats.table import show
from rich.console import Console

from builder import quant
from builder.gate.text import Text
from builder.quant.recipes import AUTO, RECIPES
from tests.models import tiny_llama

TEXT = Text("a text", "0" * 64, ("Two clerks count crates. " * 12,))
VOCABULARY = 5


def test_every_format_that_can_be_asked_for_is_compared() -> None:
    asked = set(quant.FORMATS) - {"int8-static"} | (set(RECIPES) - {AUTO}) | {"bfloat16"}
    assert set(catalogue.FORMATS) == asked


def test_unknown_formats_are_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        formats.parser().parse_args(["--formats", "int8,fp9"])
    assert "fp9" in capsys.readouterr().err


def test_a_format_named_twice_is_compared_once() -> None:
    assert formats.parser().parse_args(["--formats", "fp8,int8,fp8"]).formats == ["fp8", "int8"]


def test_memory_of_a_process_is_its_own() -> None:
    small = making.cost_of([sys.executable, "-c", "pass"])
    large = making.cost_of([sys.executable, "-c", "b'a' * (200 << 20)"])
    assert large.peak_bytes > small.peak_bytes + (150 << 20)


def test_a_process_that_fails_is_an_error() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        making.cost_of([sys.executable, "-c", "raise SystemExit(3)"])


def draw(chunk: Tokens) -> Float32:
    return (
        np.random.default_rng(len(chunk)).normal(size=(len(chunk), VOCABULARY)).astype(np.float32)
    )


def in_pieces(chunk: Tokens) -> Iterator[Float32]:
    yield from np.array_split(draw(chunk), 3)


def held(folder: Path) -> judging.Held:
    chunks = tuple(np.arange(length, dtype=np.int32) % VOCABULARY for length in (9, 150))
    return judging.hold(TEXT, chunks, lambda: in_pieces, folder)


def test_an_engine_that_says_the_same_loses_nothing(tmp_path: Path) -> None:
    figures = judging.judged("same", lambda chunk: [draw(chunk)], held(tmp_path))
    assert (figures.kl_mean, figures.agreement, figures.perplexity_ratio) == (0, 1, 1)


def test_each_row_is_held_against_the_same_row_of_float32(tmp_path: Path) -> None:
    def wrong_at_the_end(chunk: Tokens) -> Iterator[Float32]:
        rows = draw(chunk)
        rows[-2] = -rows[-2]  # the last one's coming token is unknown
        yield from np.array_split(rows, 4)

    figures = judging.judged("wrong", wrong_at_the_end, held(tmp_path))
    assert figures.agreement == pytest.approx(1 - 2 / (8 + 149))


def test_float32_reads_a_text_once(tmp_path: Path) -> None:
    held(tmp_path)
    chunks = held(tmp_path).chunks

    def never() -> Any:
        raise AssertionError

    assert len(judging.hold(TEXT, chunks, never, tmp_path).logits) == 159


def test_what_was_found_is_not_looked_for_again(tmp_path: Path) -> None:
    found = [{"name": "int8"}]
    assert formats.once(tmp_path / "found.json", lambda: found) == found
    assert formats.once(tmp_path / "found.json", list) == found


def test_what_is_told_names_every_engine_and_its_losses() -> None:
    figures = {
        "perplexity": 9.5,
        "perplexity_ratio": 1.25,
        "kl_mean": 0.5,
        "kl_p99": 2,
        "agreement": 0.75,
    }
    cost = {"wall_s": 3.0, "cpu_s": 2.0, "peak_bytes": 5 << 20}
    made = {
        "compilation": cost,
        "calibration": None,
        "artifact_bytes": 7 << 20,
        "bits_per_weight": 8.5,
    }
    engines = [
        {"name": "int8", **made, "figures": {"a text": figures}},
        {"name": "llama.cpp Q8_0", "artifact_bytes": 6 << 20, "figures": {"a text": figures}},
    ]
    output = StringIO()
    report = {"tokens": 64, "texts": {"a text": "0" * 64}, "engines": engines}
    show(report, Console(file=output, width=120))
    for word in ("int8", "llama.cpp Q8_0", "3 (2 CPU)", "8.50", "1.250", "0.5000", "0.750"):
        assert word in output.getvalue()


def test_a_chart_shows_what_has_a_size(tmp_path: Path) -> None:
    chart = pytest.importorskip("number_formats.chart", exc_type=ImportError)
    engines = [
        {
            "name": "int8",
            "artifact_bytes": 1,
            "bits_per_weight": 8,
            "figures": {"a": {"kl_mean": 0.1}},
        },
        {"name": "modelopt int8", "figures": {"a": {"kl_mean": 0.1}}},
    ]
    chart.draw_chart(tmp_path / "chart.png", engines)
    assert (tmp_path / "chart.png").stat().st_size > 0


def test_modelopts_model_without_a_calibration_rounds_the_weights_that_it_was_given(
    tmp_path: Path,
) -> None:
    tokens = np.arange(24, dtype=np.int32)
    model = tiny_llama(tmp_path / "model", hidden_size=64, intermediate_size=96, head_dim=16)
    wanted, found = (
        np.concatenate(list(formats.torch_reader(each)(tokens)))
        for each in (float_model(model), modelopt_model(model, "INT8_WEIGHT_ONLY_CFG", None))
    )
    assert 0 < np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)


@pytest.mark.slow  # calibrates and compiles in processes of their own
@pytest.mark.parametrize("name", ["fp8", "int8-smoothquant"])
def test_modelopts_model_of_a_calibrated_checkpoint_says_what_the_artifact_says(
    tmp_path: Path, name: str
) -> None:
    model = tiny_llama(tmp_path / "model", hidden_size=64, intermediate_size=96, head_dim=16)
    made = making.make(model, name, tmp_path / name, samples=8)
    assert made.calibration is not None
    (chunk,) = judging.cut(made.root, TEXT, 100)
    theirs = formats.torch_reader(
        modelopt_model(model, catalogue.FORMATS[name].modelopt, made.checkpoint)
    )
    wanted = np.concatenate(list(theirs(chunk)))
    with formats.artifact_reader(made.root, 1) as read:
        found = np.concatenate(list(read(chunk)))
    assert np.linalg.norm(found - wanted) < 0.1 * np.linalg.norm(wanted)
