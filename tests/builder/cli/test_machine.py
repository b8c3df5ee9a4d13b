"""What the machine has."""

import importlib.metadata
from pathlib import Path

import psutil
import pytest

from builder.cli import machine
from builder.errors import UserError


def write_cgroup(folder: Path, *, limit: str, used: int, inactive_file: int) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {inactive_file}\n")
    return folder


def test_without_a_container_the_memory_of_the_system_counts(tmp_path: Path) -> None:
    available = machine.available_memory_bytes(tmp_path)
    assert 0 < available <= psutil.virtual_memory().total


def test_a_container_limit_counts_less_what_is_used_and_not_reclaimable(tmp_path: Path) -> None:
    cgroup = write_cgroup(tmp_path, limit="1000", used=700, inactive_file=200)
    assert machine.available_memory_bytes(cgroup) == 500


def test_a_container_above_its_limit_has_nothing_left(tmp_path: Path) -> None:
    cgroup = write_cgroup(tmp_path, limit="1000", used=1200, inactive_file=0)
    assert machine.available_memory_bytes(cgroup) == 0


def test_a_container_without_a_limit_does_not_count(tmp_path: Path) -> None:
    cgroup = write_cgroup(tmp_path, limit="max", used=700, inactive_file=200)
    assert machine.available_memory_bytes(cgroup) > 1 << 20


def install(monkeypatch: pytest.MonkeyPatch, *installed: str) -> None:
    def distribution(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return name

    monkeypatch.setattr(importlib.metadata, "distribution", distribution)


@pytest.mark.parametrize("installed", [(), ("onnxruntime",), ("onnxruntime-gpu",)])
def test_one_runtime_or_none_is_fine(
    monkeypatch: pytest.MonkeyPatch, installed: tuple[str, ...]
) -> None:
    install(monkeypatch, *installed)
    machine.refuse_two_runtimes()


def test_two_runtimes_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "onnxruntime", "onnxruntime-gpu")
    with pytest.raises(UserError, match="pip uninstall -y onnxruntime onnxruntime-gpu"):
        machine.refuse_two_runtimes()
