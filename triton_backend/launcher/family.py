"""All the processes of one server, however they were started and whoever adopted them.

A server's environment carries a mark that every process below it inherits: the server, its stubs, and the
engine hosts that stubs start. So a process whose parent died is found as well. Shared memory has the mark in its name.
"""

import errno
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar

import psutil  # type: ignore[import-untyped]

from triton_backend.tenancy import SECRET_VARIABLE

Process: TypeAlias = psutil.Process
Answer = TypeVar("Answer")
MARK_NAME = "FORERUN_SERVER"
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 (where Linux keeps it)
HOST_MODULE = "triton_backend.host"
PATIENCE_S = 0.5
POLL_S = 0.02
KILL_ROUNDS = 3
STUB = "triton_python_backend_stub"
NO_ANSWER = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of ours that say nothing about the process that was asked about."""


def server_environment(
    inherited: Mapping[str, str], *, mark: str, secret: Path | None = None
) -> dict[str, str]:
    """Give the environment in which a server finds this Python, its library, its packages and its secret's file."""
    libraries = [str(sysconfig.get_config_var("LIBDIR")), inherited.get("LD_LIBRARY_PATH")]
    programs = [str(Path(sys.executable).parent), inherited.get("PATH")]
    return {
        **inherited,
        # Another libpython of this version may be installed; the stub must take the one that runs us.
        "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),
        "PATH": ":".join(filter(None, programs)),
        MARK_NAME: mark,
        # Empty: the secret of another server, above this one, is not this one's.
        SECRET_VARIABLE: "" if secret is None else str(secret),
    }


def members(mark: str) -> list[Process]:
    """Find the living processes that carry the mark.

    Raises:
        OSError: the kernel did not answer, such as for want of file descriptors.
    """
    return [process for process in psutil.process_iter() if _carries(process, mark)]


def hosts_among(processes: Iterable[Process]) -> list[Process]:
    """Pick the engine hosts."""
    return [process for process in processes if HOST_MODULE in _command(process)]


def stubs_among(processes: Iterable[Process]) -> dict[str, Process]:
    """Pick the stubs, by the name of the model that each runs.

    A stub's arguments end with its instance, `<model>_0_0`, and the name of its default group.
    """
    commands = [(process, _command(process)) for process in processes]
    return {
        instance.removesuffix("_0_0"): process
        for process, command in commands
        if command and Path(command[0]).name == STUB
        for instance in command
        if instance.endswith("_0_0")
    }


def option_of(process: Process, name: str) -> str | None:
    """Give the value of an option of a process's command line; None without it."""
    command = _command(process)
    return command[command.index(name) + 1] if name in command[:-1] else None


def is_alive(process: Process) -> bool:
    """Whether a process runs; one that ended and waits for its parent does not.

    Raises:
        OSError: the kernel did not answer, such as for want of file descriptors.
    """
    return _asked(
        lambda: process.is_running() and process.status() != psutil.STATUS_ZOMBIE, otherwise=False
    )


def terminate(processes: Iterable[Process]) -> None:
    """Ask processes to end; those that have ended are no error."""
    for process in processes:
        _try(process.terminate)


def end(mark: str) -> None:
    """Ask every process that carries the mark to end, kill those that do not, and remove what they leave behind."""
    left = members(mark)
    terminate(left)
    _wait(left)
    for _ in range(KILL_ROUNDS):
        left = members(mark)  # with those that were started meanwhile
        for process in left:
            _try(process.kill)
        _wait(left)
    for region in regions(mark):
        region.unlink(missing_ok=True)


def regions(mark: str) -> list[Path]:
    """Give the regions of shared memory of a server: their names begin with its mark."""
    return sorted(SHARED_MEMORY.glob(f"{mark}*"))


def _wait(processes: Iterable[Process]) -> None:
    """Wait a moment until processes have ended. Not by psutil: it would take the exit code of our own child."""
    deadline = time.monotonic() + PATIENCE_S
    while any(map(is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(POLL_S)


def _carries(process: Process, mark: str) -> bool:
    found = _asked(lambda: process.environ().get(MARK_NAME), otherwise=None)
    return bool(found == mark) and is_alive(process)


def _command(process: Process) -> list[str]:
    return _asked(process.cmdline, otherwise=[])


def _asked(question: Callable[[], Answer], *, otherwise: Answer) -> Answer:
    """Ask about a process; another user's, and one that has ended or is just ending, give no other answer.

    Raises:
        OSError: it is not the process that there is no answer from.
    """
    try:
        return question()
    except psutil.Error:
        return otherwise
    except OSError as error:
        if error.errno in NO_ANSWER:
            raise
        return otherwise


def _try(action: Callable[[], None]) -> None:
    _asked(action, otherwise=None)
