"""Runs a command, and prints what it took as JSON: a process of its own, because a process that is begun by a large one counts
as that large, whatever it does.

Usage: python -m number_formats.measuring COMMAND ...
"""

import json
import os
import subprocess
import sys
import time


def main() -> int:
    """Run the command, and exit as it does."""
    start = time.perf_counter()
    with subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    cost = {
        "wall_s": round(time.perf_counter() - start, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_bytes": usage.ru_maxrss * 1024,
    }
    print(json.dumps(cost))
    return process.returncode


if __name__ == "__main__":
    sys.exit(main())
