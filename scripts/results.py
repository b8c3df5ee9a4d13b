"""Turn pytest's JUnit report into the committed table of results. Usage: results.py REPORT TABLE."""

import os
import platform
import sys
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree


@dataclass(slots=True)
class Tally:
    """One row of the table."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0


def tally(report: str) -> dict[str, Tally]:
    """Count the test cases of a JUnit `report` by the folder of tests/ they live in."""
    groups: dict[str, Tally] = defaultdict(Tally)
    # The report was written by our own test run a moment ago, so entity bombs are no concern.
    for case in ElementTree.fromstring(report).iter("testcase"):  # noqa: S314
        row = groups[group_of(case.get("classname", ""))]
        row.seconds += float(case.get("time", "0"))
        kinds = {child.tag for child in case}
        row.failed += bool(kinds & {"failure", "error"})
        row.skipped += "skipped" in kinds
        row.passed += not kinds & {"failure", "error", "skipped"}
    return dict(sorted(groups.items()))


def group_of(classname: str) -> str:
    """Name the group of `tests.builder.graph.test_ops`: `builder/graph`, at most two folders deep."""
    folders = classname.split(".")[1:]
    depth = next((i for i, part in enumerate(folders) if part.startswith("test_")), len(folders))
    return "/".join(folders[: min(depth, 2)]) or "tests"


def render(groups: dict[str, Tally], *, date: str, machine: str) -> str:
    """Lay out the table as Markdown."""
    total = Tally(
        sum(row.passed for row in groups.values()),
        sum(row.failed for row in groups.values()),
        sum(row.skipped for row in groups.values()),
        sum(row.seconds for row in groups.values()),
    )
    lines = [
        "# Test results",
        "",
        f"Written by `scripts/test --full` on {date}: {machine}.",
        "",
        "| group | passed | failed | skipped | seconds |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, row in [*groups.items(), ("**all**", total)]:
        counts = f"{row.passed} | {row.failed} | {row.skipped} | {row.seconds:.1f}"
        lines.append(f"| {name} | {counts} |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Describe this machine without naming it."""
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, {os.cpu_count()} cores, {gib:.0f} GiB, Python {platform.python_version()}"


if __name__ == "__main__":
    report, table = map(Path, sys.argv[1:])
    date = datetime.now(UTC).date().isoformat()
    table.write_text(render(tally(report.read_text()), date=date, machine=machine()))
