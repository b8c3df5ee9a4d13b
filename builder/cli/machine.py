"""What this machine has: memory a process may still take, and engine runtimes that exclude each other."""

import importlib.metadata
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from builder.errors import UserError


def available_memory_bytes(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Give the bytes that can be taken without swapping, within the container's limit if it has one."""
    return min([int(psutil.virtual_memory().available), *_cgroup_room(cgroup)])


def _cgroup_room(cgroup: Path) -> list[int]:
    """Give limit minus use of the container (cgroup version 2); nothing where there is no limit."""
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
        stat = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        # Cached file pages count as used, but the kernel drops them before it kills anyone.
        return [max(int(limit) - used + int(stat.get("inactive_file", 0)), 0)]
    except (OSError, ValueError):  # no such files, or a limit of "max"
        return []


def refuse_two_runtimes() -> None:
    """Refuse an environment in which two builds of ONNX Runtime overwrote each other's files.

    Raises:
        UserError: both `onnxruntime` and `onnxruntime-gpu` are installed.
    """
    if _is_installed("onnxruntime") and _is_installed("onnxruntime-gpu"):
        raise UserError(
            "onnxruntime and onnxruntime-gpu are both installed and overwrite each other's files; run "
            "pip uninstall -y onnxruntime onnxruntime-gpu, then install forerun[cpu] or forerun[gpu]"
        )


def _is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.distribution(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
