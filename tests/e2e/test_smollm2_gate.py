"""The real model in int8 meets its default thresholds, and its answers are mostly those of float32."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from builder.artifact.gate_report import read_report
from builder.cli.main import main
from tests.models import smollm2_gguf

pytestmark = pytest.mark.model


def test_int8_meets_the_gate_of_its_format(tmp_path: Path) -> None:
    root = tmp_path / "smollm2"
    limits = ("--max-seq-len", "512", "--max-num-seqs", "32")
    options = ("--int8", "--gate", "--gate-tokens", "512", *limits, "--quiet")
    result = CliRunner().invoke(main, ["compile", str(smollm2_gguf()), "-o", str(root), *options])
    assert result.exit_code == 0, result.stderr
    report = read_report(root)
    assert report is not None
    assert (report.verdict, report.text.num_tokens) == ("met", 512)
    figures = {judgement.name: judgement.value for judgement in report.judgements}
    assert 0 < figures["kl_mean"] < 0.01
    assert report.answers.num_right >= 18
    assert [path.name for path in tmp_path.iterdir()] == ["smollm2"]
