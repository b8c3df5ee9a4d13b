"""Where the fronts of a deployment and its engine host meet: a socket in a private folder, and a lock beside it.

The lock is held by the host for as long as it lives, and the kernel drops it with the process. So there is
never more than one host, and whoever holds the lock may replace a socket that was left behind.
"""

import contextlib
import fcntl
import hashlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

from builder.errors import UserError

RUNTIME_ROOT = Path("/tmp")  # noqa: S108 - short, as a socket's path must be; the folder in it is private
BACKLOG = 64


def runtime_folder(root: Path = RUNTIME_ROOT) -> Path:
    """Give this user's private folder for sockets, made if need be.

    Raises:
        UserError: something else is in its place, or others may enter it.
    """
    user = os.getuid()
    folder = root / f"forerun-{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    is_private = stat.S_ISDIR(found.st_mode) and stat.S_IMODE(found.st_mode) == 0o700
    if not is_private or found.st_uid != user:
        raise UserError(
            f"{folder} must be a folder of user {user} with mode 0700, because engine hosts listen in it; "
            "remove what is there"
        )
    return folder


def socket_path(folder: Path, *identity: str) -> Path:
    """Give the path of the socket that belongs to an identity: equal for equal parts, and for no others."""
    joined = b"\0".join(part.encode() for part in identity)
    return folder / f"{hashlib.sha256(joined).hexdigest()[:16]}.sock"


def connect(path: Path) -> socket.socket | None:
    """Connect to the host behind a socket; None if there is none."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    except OSError:
        connection.close()
        raise
    return connection


def peer_pid(connection: socket.socket) -> int:
    """Give the process that listens at the other end of a connection."""
    size = struct.calcsize("3i")
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    pid: int = struct.unpack("3i", credentials)[0]
    return pid


@contextlib.contextmanager
def claimed(path: Path) -> Iterator[socket.socket | None]:
    """Listen behind a socket as its only host; None if another host does already.

    Raises:
        OSError: the socket can't be made, such as where its folder is gone.
    """
    with _locked(path.with_suffix(".lock")) as is_ours:
        if not is_ours:
            yield None
            return
        path.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
            listener.listen(BACKLOG)
            try:
                yield listener
            finally:
                unmark(path)


def unmark(path: Path) -> None:
    """Remove the files of a place that this process has claimed and gives up.

    The lock is still held then: whoever opened its file meanwhile finds it gone, and opens another.
    """
    path.unlink(missing_ok=True)
    path.with_suffix(".lock").unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """Remove the files of places whose hosts were killed."""
    for lock in folder.glob("*.lock"):
        with _locked(lock) as is_ours:
            if is_ours:
                unmark(lock.with_suffix(".sock"))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold a lock file; tell whether we got it."""
    while True:
        lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        with contextlib.ExitStack() as undo:
            undo.callback(os.close, lock)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            if _is_at(path, lock):
                yield True
                return


def _is_at(path: Path, descriptor: int) -> bool:
    """Tell whether an open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
