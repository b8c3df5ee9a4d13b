"""The soft limit of open files is raised, and never lowered."""

import resource
from collections.abc import Iterator

import pytest

from triton_backend.launcher import open_files
from triton_backend.launcher.open_files import allow_many_files


@pytest.fixture(autouse=True)
def hard() -> Iterator[int]:
    """Give the hard limit; both limits are as before in the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_a_low_limit_is_raised_to_the_hard_one(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "ENOUGH", hard + 1)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_many_files()
    assert soft() == hard


def test_no_more_than_enough_is_asked_for(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "ENOUGH", 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    allow_many_files()
    assert soft() == 512


def test_a_higher_limit_stays(hard: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_files, "ENOUGH", 512)
    resource.setrlimit(resource.RLIMIT_NOFILE, (600, hard))
    allow_many_files()
    assert soft() == 600
