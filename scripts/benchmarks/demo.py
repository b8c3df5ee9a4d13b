"""Time scripts/demo from a clean clone of HEAD, with an empty pip cache and then with the cache it filled.

Aim: under 6 minutes cold on two cores. Usage: scripts/bench demo [--json FILE|-].
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from reporting.failures import exit_with
from reporting.figures import add_json_option

ROOT = Path(__file__).resolve().parent.parent.parent


def measure(clone: Path, *, cache: Path) -> float:
    """Clone HEAD into `clone`, run its demo with pip's cache at `cache`; return the wall time in seconds."""
    start = time.perf_counter()
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    # pip reads its settings from variables; an active environment must not leak into the clone's.
    environment = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}  # noqa: TID251
    environment["PIP_CACHE_DIR"] = str(cache)
    subprocess.run([clone / "scripts" / "demo"], env=environment, stdout=sys.stderr, check=True)
    return time.perf_counter() - start


def main() -> None:
    """Measure cold and warm and print both."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        cache = Path(scratch, "cache")
        figures = {
            f"{name}_s": round(measure(Path(scratch, name), cache=cache), 1)
            for name in ("cold", "warm")
        }
    report = json.dumps(figures, indent=2)
    if options.json and options.json != Path("-"):
        options.json.write_text(report + "\n")
    print(report)


if __name__ == "__main__":
    exit_with(main)
