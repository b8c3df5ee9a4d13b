"""All processes of a server are found by their mark, ended, and what they leave behind is removed."""

import errno
import resource
import subprocess
import sys
import sysconfig
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from triton_backend.launcher import family

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}"
ORPHAN = f"""
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", {SLEEP!r}], stdout=subprocess.DEVNULL).pid, flush=True)
"""


@pytest.fixture
def mark() -> Iterator[str]:
    """Give a mark of this test; nothing that carries it is left in the end."""
    name = f"test-{uuid.uuid4().hex}"
    yield name
    family.end(name)


def start(mark: str, program: str, *arguments: str) -> subprocess.Popen[str]:
    environment = family.server_environment({"PATH": "/usr/bin:/bin"}, mark=mark)
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def test_the_environment_leads_to_this_python_and_its_library() -> None:
    found = family.server_environment({"PATH": "/usr/bin", "HOME": "/h"}, mark="m")
    assert found["PATH"] == f"{Path(sys.executable).parent}:/usr/bin"
    assert found["LD_LIBRARY_PATH"] == sysconfig.get_config_var("LIBDIR")
    assert found["HOME"] == "/h"


def test_a_library_path_that_was_set_is_searched_after_ours() -> None:
    found = family.server_environment({"LD_LIBRARY_PATH": "/opt/lib"}, mark="m")
    assert found["LD_LIBRARY_PATH"] == f"{sysconfig.get_config_var('LIBDIR')}:/opt/lib"


def test_a_process_without_the_mark_is_no_member(mark: str) -> None:
    assert family.members(mark) == []


def test_an_orphan_is_found_by_the_mark_that_it_inherited(mark: str) -> None:
    with start(mark, ORPHAN) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
    assert [process.pid for process in family.members(mark)] == [child]


def test_a_process_that_has_ended_is_no_member_and_not_alive(mark: str) -> None:
    process = start(mark, "print('up')")
    assert process.stdout is not None
    process.stdout.read()
    handle = psutil.Process(process.pid)
    while handle.status() != psutil.STATUS_ZOMBIE:
        pass
    assert family.members(mark) == []
    assert not family.is_alive(handle)
    process.wait()
    process.stdout.close()
    assert not family.is_alive(handle)


@pytest.fixture
def no_descriptors() -> Iterator[Callable[[], None]]:
    """Give what leaves this process without a free file descriptor; it has them again in the end."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    "question",
    [
        family.is_alive,
        lambda _: family.members("any"),
        lambda process: family.stubs_among([process]),
        lambda process: family.hosts_among([process]),
    ],
)
def test_want_of_file_descriptors_is_no_verdict(
    question: Callable[[psutil.Process], object], no_descriptors: Callable[[], None]
) -> None:
    """Neither "it has ended" nor "there is none"."""
    process = psutil.Process()
    list(psutil.process_iter())
    no_descriptors()
    with pytest.raises(OSError, match="Too many open files"):
        question(process)


def test_other_errors_of_the_kernel_are_those_of_a_process_that_is_just_ending(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gone(_: psutil.Process) -> dict[str, str]:
        raise FileNotFoundError(errno.ENOENT, "just ending")

    monkeypatch.setattr(psutil.Process, "environ", gone)
    assert family.members("any") == []


def test_end_kills_what_does_not_end_when_asked(mark: str) -> None:
    with start(mark, STUBBORN) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        family.end(mark)
        assert process.wait(10) == -9
    assert family.members(mark) == []


def test_end_asks_before_it_kills(mark: str) -> None:
    with start(mark, f"print('up', flush=True); {SLEEP}") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        family.end(mark)
        assert process.wait(10) == -15


def test_hosts_are_known_by_the_module_that_they_run(mark: str) -> None:
    with start(mark, SLEEP, "triton_backend.host") as host, start(mark, SLEEP) as other:
        hosts = family.hosts_among(family.members(mark))
        assert [process.pid for process in hosts] == [host.pid]
        family.terminate(hosts)
        assert host.wait(10) == -15
        assert other.poll() is None
        other.kill()


def test_stubs_are_known_by_their_program_and_the_instance_they_run(
    mark: str, tmp_path: Path
) -> None:
    stub = tmp_path / family.STUB
    stub.symlink_to(sys.executable)
    environment = family.server_environment({}, mark=mark)
    arguments = ["-c", SLEEP, "/repository/tiny_0_0/1/model.py", "region", "tiny_0_0_0", "DEFAULT"]
    stubs = subprocess.Popen([str(stub), *arguments], env=environment)
    with stubs as process, start(mark, SLEEP, "other_0_0"):
        found = family.stubs_among(family.members(mark))
        assert {model: each.pid for model, each in found.items()} == {"tiny_0": process.pid}
        family.end(mark)


def test_terminating_a_process_that_has_ended_is_no_error(mark: str) -> None:
    process = start(mark, "")
    handle = psutil.Process(process.pid)
    process.communicate()
    family.terminate([handle])


def test_end_removes_shared_memory_with_the_mark_and_no_other(
    mark: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "SHARED_MEMORY", tmp_path)
    for name in (f"{mark}-region", f"{mark}-other", "another-region"):
        (tmp_path / name).touch()
    assert len(family.regions(mark)) == 2
    family.end(mark)
    assert [path.name for path in tmp_path.iterdir()] == ["another-region"]
