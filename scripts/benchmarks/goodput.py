"""Simulate goodput under every policy from half to one and a half times the capacity: it must not collapse past it.

The requests have what each policy looks at: tenants of unequal appetite, three priorities, and 24 prefixes that some begin
with. A request is good if it meets the SLO, by default a first token within 1 s and 0.1 s between tokens. Nothing is timed:
the figures are those of `builder simulate` and the same on every machine.
Usage: scripts/bench goodput [--requests N] [--plot FILE] [--json FILE] [options of builder simulate].
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

from reporting.failures import exit_with

POLICIES = "fcfs,priority,srpt,fair,longest_prefix"
LOADS = "0.5,0.8,1,1.2,1.5"
MAX_WAITING = 8
NUM_TENANTS = 8
NUM_PRIORITIES = 3
NUM_PREFIXES = 24
NUM_PREFIX = 128
MEAN_PROMPT, MEAN_ANSWER = 256, 64
MAX_PROMPT, MAX_ANSWER = 1536, 448
BUILDER = str(Path(sys.executable).with_name("builder"))


def requests(count: int) -> Iterator[dict[str, object]]:
    """Draw a Poisson stream of one request a second."""
    random, now = Random(0), 0.0  # noqa: S311 - nothing secret is drawn
    tenants = range(1, NUM_TENANTS + 1)
    for _ in range(count):
        now += random.expovariate(1.0)
        own = 1 + min(int(random.expovariate(1 / MEAN_PROMPT)), MAX_PROMPT - 1)
        has_prefix = random.random() < 0.5
        yield {
            "at_s": now,
            "num_prompt": own + NUM_PREFIX * has_prefix,
            "num_answer": 1 + min(int(random.expovariate(1 / MEAN_ANSWER)), MAX_ANSWER - 1),
            "tenant": str(random.choices(tenants, [1 / number for number in tenants])[0]),
            "priority": random.randrange(NUM_PRIORITIES),
            "prefix": f"p{random.randrange(NUM_PREFIXES)}" if has_prefix else "",
            "num_prefix": NUM_PREFIX * has_prefix,
        }


def main() -> int:
    """Write the trace, and give it to the simulator."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=2000)
    options, further = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "requests.jsonl"
        trace.write_text("".join(json.dumps(each) + "\n" for each in requests(options.requests)))
        return subprocess.run(
            [
                *(BUILDER, "simulate", "--trace", str(trace), "--policy", POLICIES),
                *("--load", LOADS, "--max-waiting", str(MAX_WAITING), *further),
            ],
            check=False,
        ).returncode


if __name__ == "__main__":
    exit_with(main)
