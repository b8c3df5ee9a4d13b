"""What people are shown of a calibration that was done."""

from pathlib import Path

from builder.artifact.calibration_report import read_calibration
from builder.errors import ArtifactError


def calibration_line(root: Path) -> str:
    """Say in a line how the artifact at `root` was calibrated."""
    try:
        report = read_calibration(root)
    except ArtifactError as error:
        return f"not readable: {error}"
    if report is None:
        return "none"
    samples, most = report.samples, report.most_clipped
    few = "; too few samples to rely on" if samples.warning else ""
    return (
        f"{report.format} by {report.tool}: {samples.num_measured} tokens of {samples.name}; at most "
        f"{most.clipped:.3%} clipped ({most.name}){few}"
    )
