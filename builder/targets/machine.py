"""What this process may use of its machine: cores and memory, by its affinity and the limits of its cgroups.

Containers set such limits, and everything that asks the machine itself is told of cores and memory that it does not have.
Both versions of cgroups are read (kernel documentation, admin-guide/cgroup-v1 and -v2); a limit that can't be read is none.
"""

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import psutil  # type: ignore[import-untyped]

from builder.errors import UserError

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
THREADS_PER_CORE = 4


def usable_threads(threads: int | None) -> int:
    """Give the threads to run with: as asked, or one for every core that this process may use.

    Raises:
        UserError: fewer than 1, or more than four per usable core.
    """
    cores = usable_cores()
    if threads is None:
        return cores
    if not 1 <= threads <= THREADS_PER_CORE * cores:
        raise UserError(
            f"{threads} threads were asked for; from 1 to {THREADS_PER_CORE * cores} are supported here"
        )
    return threads


def usable_cores(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Count the cores that the scheduler grants: those of the affinity, or fewer under a quota of time."""
    granted = float(len(os.sched_getaffinity(0)))
    for folder in _folders(cgroups, membership, "cpu"):
        granted = min(granted, _quota(folder))
    # A quota of one and a half cores keeps two threads busy three quarters of the time.
    return max(1, math.ceil(granted))


def available_memory_bytes(cgroups: Path = CGROUPS, membership: Path = MEMBERSHIP) -> int:
    """Give the bytes that can be taken without swapping, within the limits of the containers around this process."""
    free = int(psutil.virtual_memory().available)
    for folder in _folders(cgroups, membership, "memory"):
        for limit, used in (
            ("memory.max", "memory.current"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes"),
        ):
            numbers = (_number(folder / limit), _number(folder / used))
            if numbers[0] is not None and numbers[1] is not None:
                free = min(free, int(numbers[0] - numbers[1]) + _reclaimable(folder))
    return max(0, free)


def _folders(cgroups: Path, membership: Path, controller: str) -> Iterator[Path]:
    """Give the folders of the cgroups that this process is in, each with those around it: all their limits count."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        root = cgroups / controller if controllers else cgroups
        inner = PurePosixPath(path.lstrip("/"))
        yield from (root / each for each in (inner, *inner.parents) if ".." not in each.parts)


def _quota(folder: Path) -> float:
    """Give the cores' worth of time that a cgroup may take; infinity without a limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
    except (OSError, ValueError):
        numbers = (_number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us"))
    else:
        numbers = (None if quota == "max" else float(quota), float(period))
    if numbers[0] is None or not numbers[1] or numbers[0] <= 0:
        return math.inf
    return numbers[0] / numbers[1]


def _reclaimable(folder: Path) -> int:
    """Give the bytes of file pages that the kernel drops when a cgroup needs room."""
    try:
        fields = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        return int(fields.get("inactive_file", 0))
    except (OSError, ValueError):
        return 0


def _number(path: Path) -> float | None:
    try:
        return float(path.read_text())
    except (OSError, ValueError):
        return None
