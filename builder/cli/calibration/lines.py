"""What people are shown of a calibration that was done."""

from pathlib import Path

from builder.artifact.calibration_report import read_calibration
from builder.cli.display import Rows
from builder.errors import ArtifactError


def calibration_rows(root: Path) -> Rows:
    """Say in a row how the artifact at `root` was calibrated; no row where it was not."""
    try:
        report = read_calibration(root)
    except ArtifactError as error:
        return [("calibration", f"not readable: {error}")]
    if report is None:
        return []
    samples, most = report.samples, report.most_clipped
    few = "; too few samples to rely on" if samples.warning else ""
    told = (
        f"{report.format} by {report.tool}: {samples.num_measured} tokens of {samples.name}; at most "
        f"{most.clipped:.3%} clipped ({most.name}){few}"
    )
    return [("calibration", told)]
