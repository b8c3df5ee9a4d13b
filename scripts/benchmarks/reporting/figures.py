"""The option --json, which every benchmark has: where the figures go besides the table, or instead of it."""

import argparse
import json
from pathlib import Path


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures; - is stdout")


def told_as_json(report: object, to: Path | None) -> bool:
    """Write the figures where --json says; true if that is stdout, where no table belongs then."""
    text = json.dumps(report, indent=2)
    if to == Path("-"):
        print(text)
        return True
    if to is not None:
        to.write_text(text + "\n")
    return False
