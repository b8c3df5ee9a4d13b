"""What people are shown of a calibration that was done."""

from collections import Counter
from pathlib import Path

from builder.artifact.calibration_report import SearchRecord, read_calibration
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
    chosen = "" if report.search is None else f" ({search_line(report.search)})"
    told = (
        f"{report.format}{chosen} by {report.tool}: {samples.num_measured} tokens of {samples.name}; at most "
        f"{most.clipped:.3%} clipped ({most.name}){few}"
    )
    return [("calibration", told)]


def search_line(search: SearchRecord) -> str:
    """Say how many layers became what, and how many bits a weight has."""
    counts = ", ".join(
        f"{count} {form}" for form, count in Counter(search.layers.values()).most_common()
    )
    return f"{search.bits:.2f} of {search.asked_bits:g} bits: {counts}"
