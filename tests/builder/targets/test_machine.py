"""Cores and memory that a process may use."""

import os
from pathlib import Path

import psutil
import pytest

from builder.errors import UserError
from builder.targets.machine import available_memory_bytes, usable_cores, usable_threads

HERE = "0::/outer/inner\n"
V1 = "4:cpu,cpuacct:/inner\n3:memory:/inner\n"


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


@pytest.fixture
def membership(tmp_path: Path) -> Path:
    path = tmp_path / "membership"
    path.write_text(HERE)
    return path


@pytest.fixture
def cgroups(tmp_path: Path) -> Path:
    return tmp_path / "cgroups"


@pytest.fixture(autouse=True)
def eight_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))


def test_without_a_quota_the_affinity_counts(cgroups: Path, membership: Path) -> None:
    write(cgroups / "outer/inner", cpu__max="max 100000")
    assert usable_cores(cgroups, membership) == 8


def test_a_part_of_a_core_counts_as_one(cgroups: Path, membership: Path) -> None:
    write(cgroups / "outer/inner", cpu__max="150000 100000")
    assert usable_cores(cgroups, membership) == 2


def test_the_tightest_of_all_cgroups_around_counts(cgroups: Path, membership: Path) -> None:
    write(cgroups / "outer/inner", cpu__max="400000 100000")
    write(cgroups / "outer", cpu__max="300000 100000")
    write(cgroups, cpu__max="800000 100000")
    assert usable_cores(cgroups, membership) == 3


def test_a_quota_above_the_affinity_adds_no_cores(cgroups: Path, membership: Path) -> None:
    write(cgroups, cpu__max="6400000 100000")
    assert usable_cores(cgroups, membership) == 8


def test_a_tiny_quota_leaves_one_core(cgroups: Path, membership: Path) -> None:
    write(cgroups, cpu__max="1000 100000")
    assert usable_cores(cgroups, membership) == 1


@pytest.mark.parametrize(("quota", "cores"), [("250000", 3), ("-1", 8)])
def test_cgroups_of_version_1_count_too(
    cgroups: Path, membership: Path, quota: str, cores: int
) -> None:
    membership.write_text(V1)
    write(cgroups / "cpu/inner", cpu__cfs_quota_us=quota, cpu__cfs_period_us="100000")
    assert usable_cores(cgroups, membership) == cores


def test_a_cgroup_outside_of_what_is_seen_is_no_limit(cgroups: Path, membership: Path) -> None:
    membership.write_text("0::/../../elsewhere\n")
    write(cgroups, cpu__max="200000 100000")
    assert usable_cores(cgroups, membership) == 2


def test_a_system_without_cgroups_has_no_limits(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "none", tmp_path / "nothing") == 8


def test_threads_default_to_the_usable_cores_and_are_bounded() -> None:
    cores = usable_threads(None)
    assert cores >= 1
    assert usable_threads(1) == 1
    for wrong in (0, -1, 10_000):
        with pytest.raises(UserError, match=str(wrong)):
            usable_threads(wrong)


def test_without_a_container_the_memory_of_the_system_counts(tmp_path: Path) -> None:
    available = available_memory_bytes(tmp_path, tmp_path / "nothing")
    assert 0 < available <= psutil.virtual_memory().total


@pytest.mark.parametrize(("used", "free"), [(700, 500), (1500, 0)])
def test_a_limit_counts_less_what_is_used_and_not_reclaimable(
    cgroups: Path, membership: Path, used: int, free: int
) -> None:
    write(
        cgroups / "outer/inner",
        memory__max="1000",
        memory__current=str(used),
        memory__stat="anon 5\ninactive_file 200",
    )
    assert available_memory_bytes(cgroups, membership) == free


def test_a_limit_of_version_1_counts(cgroups: Path, membership: Path) -> None:
    membership.write_text(V1)
    write(cgroups / "memory/inner", memory__limit_in_bytes="1000", memory__usage_in_bytes="400")
    assert available_memory_bytes(cgroups, membership) == 600


def test_a_container_without_a_limit_does_not_count(cgroups: Path, membership: Path) -> None:
    write(cgroups / "outer/inner", memory__max="max", memory__current="700")
    assert available_memory_bytes(cgroups, membership) > 1 << 20
