"""The report of a calibration: read as written, and refused when it is not one."""

from pathlib import Path

import pytest

from builder.artifact.calibration_report import (
    PLACE,
    SCHEMA,
    CalibrationReport,
    QuantizerRecord,
    SampleRecord,
    decode,
    encode,
    read_calibration,
    write_calibration,
)
from builder.cli.calibration.lines import calibration_rows
from builder.errors import ArtifactError


def report(warning: str | None = None) -> CalibrationReport:
    return CalibrationReport(
        schema=SCHEMA,
        version="1.0",
        tool="nvidia-modelopt 0.47.0",
        format="fp8",
        group=0,
        kv=None,
        samples=SampleRecord("mine.txt", "0" * 64, 3, 900, 800, 700, 200, True, warning),
        quantizers=(
            QuantizerRecord("a.input", 700, 4.48, 0.01, 0.0),
            QuantizerRecord("b.input", 700, 8.96, 0.02, 0.00125),
        ),
    )


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert read_calibration(tmp_path) is None
    write_calibration(tmp_path, report())
    assert read_calibration(tmp_path) == report()
    assert (tmp_path / PLACE).read_bytes() == encode(report())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        encode(report()).replace(b'"amax"', b'"max"'),
        encode(report()).replace(b'"schema": 1', b'"schema": 2'),
    ],
)
def test_what_is_no_report_is_refused(data: bytes) -> None:
    with pytest.raises(ArtifactError, match="compile the model again"):
        decode(data)


def test_inspect_says_how_much_was_clipped_at_most_and_where(tmp_path: Path) -> None:
    assert calibration_rows(tmp_path) == []
    write_calibration(tmp_path, report())
    ((name, told),) = calibration_rows(tmp_path)
    assert name == "calibration"
    assert told == (
        "fp8 by nvidia-modelopt 0.47.0: 700 tokens of mine.txt; at most 0.125% clipped (b.input)"
    )
    write_calibration(tmp_path, report(warning="few"))
    assert calibration_rows(tmp_path)[0][1].endswith("; too few samples to rely on")
    (tmp_path / PLACE).write_bytes(b"{")
    assert calibration_rows(tmp_path)[0][1].startswith("not readable: ")
