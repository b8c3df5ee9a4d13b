"""Measure what busy neighbours cost: decode steps beside competitors of the lowest priority, and the time an idle engine takes.

One competitor, then one for each core, each a process that only counts, niced to 19. Steps alone and steps beside them take
turns; figures are ratios of medians. Aims: at least 0.4 of the speed stays; an idle engine uses below 1 % of a core.
Usage: scripts/bench neighbour --artifact DIR [--threads N] [--rounds N] [--json FILE|-].
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from engine import Driver, check_room
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.table import Table

from builder.artifact.store import Artifact, read_manifest
from builder.targets import open_executor
from builder.targets.executor import Executor

SIZES = (1, 16)
PAST = 128
NUM_STEPS = 24
IDLE_S = 3.0
AIMS = {"share_kept": 0.4, "idle_cores": 0.01}
COUNT = "import os\nos.nice(19)\nprint(flush=True)\nn = 0\nwhile True: n += 1"


@contextmanager
def competitors(count: int) -> Iterator[None]:
    """Keep cores busy."""
    running = [
        subprocess.Popen([sys.executable, "-c", COUNT], stdout=subprocess.PIPE)
        for _ in range(count)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        yield
    finally:
        for process in running:
            process.kill()
            process.communicate()


def steps_per_s(executor: Executor, num_sequences: int) -> float:
    """Give steps per second in which each sequence gets one token."""
    driver = Driver(executor, PAST + NUM_STEPS)
    return NUM_STEPS / sum(
        driver.run(range(num_sequences), PAST + index, 1) for index in range(NUM_STEPS)
    )


def shares_kept(executor: Executor, rounds: int) -> dict[str, float]:
    """Give the share of the speed that stays, by sequences and competitors."""
    shares = {}
    for num_sequences in SIZES:
        for count in sorted({1, len(os.sched_getaffinity(0))}):
            alone, beside = [], []
            for _ in range(rounds):
                alone.append(steps_per_s(executor, num_sequences))
                with competitors(count):
                    beside.append(steps_per_s(executor, num_sequences))
            ratio = median(beside) / median(alone)
            shares[f"{num_sequences} sequences, {count} competitors"] = round(ratio, 3)
    return shares


def idle_cores() -> float:
    """Give the cores' worth of time that this process takes when nothing is asked of its engine."""
    time.sleep(0.1)
    before, begin = time.process_time(), time.perf_counter()
    time.sleep(IDLE_S)
    return (time.process_time() - before) / (time.perf_counter() - begin)


def main() -> None:
    """Measure one artifact, and print JSON or a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, metavar="DIR")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    add_json_option(parser)
    options = parser.parse_args()
    artifact = Artifact(options.artifact, read_manifest(options.artifact))
    executor = open_executor(artifact, threads=options.threads)
    check_room(executor, SIZES, num_tokens=PAST + NUM_STEPS)
    steps_per_s(executor, 1)
    report: dict[str, Any] = {
        "share_kept": shares_kept(executor, options.rounds),
        "idle_cores": round(idle_cores(), 4),
        "aims": AIMS,
    }
    executor.close()
    if told_as_json(report, options.json):
        return
    table = Table("figure", "value", "aim")
    for name, share in report["share_kept"].items():
        table.add_row(f"speed kept, {name}", str(share), f">= {AIMS['share_kept']}")
    table.add_row("cores used when idle", str(report["idle_cores"]), f"<= {AIMS['idle_cores']}")
    Console().print(table)


if __name__ == "__main__":
    exit_with(main)
