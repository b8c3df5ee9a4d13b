"""Where the figures of a benchmark go."""

import argparse
import json
from pathlib import Path

import pytest
from reporting.figures import add_json_option, told_as_json

REPORT = {"figure": 1.5}


def test_without_the_option_nothing_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert not told_as_json(REPORT, None)
    assert capsys.readouterr().out == ""


def test_a_file_holds_the_figures_and_stdout_stays_for_the_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not told_as_json(REPORT, tmp_path / "figures.json")
    assert json.loads((tmp_path / "figures.json").read_text()) == REPORT
    assert capsys.readouterr().out == ""


def test_stdout_has_the_figures_alone(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    add_json_option(parser)
    assert told_as_json(REPORT, parser.parse_args(["--json", "-"]).json)
    assert json.loads(capsys.readouterr().out) == REPORT
