"""The guard ends marked processes when its starter is gone, and does nothing before."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import psutil
import pytest

from triton_backend.launcher import family
from triton_backend.launcher.guard import guarded

WAIT_S = 60
STARTER = """
import signal, subprocess, sys, time
from pathlib import Path
from triton_backend.launcher import family
from triton_backend.launcher.guard import guarded
mark, folder = sys.argv[1], Path(sys.argv[2])
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(600)"
with guarded(mark, folder):
    environment = family.server_environment({}, mark=mark)
    child = subprocess.Popen([sys.executable, "-c", stubborn], env=environment, stdout=subprocess.PIPE)
    child.stdout.readline()
    print(child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def mark() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_starter_left_is_ended(
    mark: str, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    command = [sys.executable, "-c", STARTER, mark, str(folder)]
    starter = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    with starter as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        (guard,) = [each for each in psutil.Process(process.pid).children() if each != child]
        assert family.members(mark) == [child]
        os.killpg(process.pid, number)
    _, alive = psutil.wait_procs([child, guard], timeout=WAIT_S)
    assert alive == []
    assert not folder.exists()


def test_a_guard_ends_with_an_orderly_end(mark: str, tmp_path: Path) -> None:
    before = psutil.Process().children()
    with guarded(mark, tmp_path / "none"):
        (guard,) = [each for each in psutil.Process().children() if each not in before]
    assert not family.is_alive(guard)


def test_the_end_of_the_body_by_an_error_ends_the_guard_too(mark: str, tmp_path: Path) -> None:
    before = psutil.Process().children()
    with pytest.raises(ZeroDivisionError), guarded(mark, tmp_path):
        raise ZeroDivisionError
    assert [each for each in psutil.Process().children() if each not in before] == []


def test_modules_in_the_current_folder_are_not_the_guard_s(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("psutil", "shutil", "triton_backend"):
        (tmp_path / f"{name}.py").write_text(f"open({str(tmp_path / 'hostile')!r}, 'a').close()")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    with guarded(mark, folder):
        pass
    assert not (tmp_path / "hostile").exists()
    assert not folder.exists(), "the guard did its work"
