"""The place where fronts and a host meet: private, claimed by one, and free again whatever happened to it."""

import multiprocessing
import os
import socket
from pathlib import Path

import pytest

from builder.errors import UserError
from triton_backend import rendezvous
from triton_backend.rendezvous import claimed, connect, peer_pid, runtime_folder, socket_path, sweep


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "here.sock"


def test_the_folder_is_made_for_this_user_alone(tmp_path: Path) -> None:
    folder = runtime_folder(tmp_path)
    assert folder == tmp_path / f"forerun-{os.getuid()}"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert runtime_folder(tmp_path) == folder


def test_the_folder_lies_where_sockets_may_have_short_paths() -> None:
    path = socket_path(Path(f"/tmp/forerun-{2**32 - 1}"), "a")  # noqa: S108
    assert len(str(path)) < 100


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701, 0o1700])
def test_a_folder_that_others_may_enter_is_refused(tmp_path: Path, mode: int) -> None:
    runtime_folder(tmp_path).chmod(mode)
    with pytest.raises(
        UserError, match=r"must be a folder of user .* with mode 0700.*; remove what"
    ):
        runtime_folder(tmp_path)


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / f"forerun-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="mode 0700"):
        runtime_folder(tmp_path)


def test_a_folder_of_somebody_else_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendezvous.os, "getuid", lambda: 12345)
    with pytest.raises(UserError, match="must be a folder of user 12345"):
        runtime_folder(tmp_path)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"forerun-{os.getuid()}").touch(mode=0o700)
    with pytest.raises(UserError, match="mode 0700"):
        runtime_folder(tmp_path)


def test_equal_identities_meet_and_others_do_not(path: Path) -> None:
    folder = path.parent
    assert socket_path(folder, "a", "b") == socket_path(folder, "a", "b")
    others = [("a",), ("ab",), ("b", "a"), ("a", "b", ""), ("a", "c")]
    assert len({socket_path(folder, *parts) for parts in [("a", "b"), *others]}) == 6


def test_nobody_is_there_before_a_claim_and_after_it(path: Path) -> None:
    assert connect(path) is None
    with claimed(path) as listener:
        assert listener is not None
        connection = connect(path)
        assert connection is not None
        connection.close()
    assert connect(path) is None
    assert list(path.parent.iterdir()) == []


def test_whoever_connects_learns_who_listens(path: Path) -> None:
    with claimed(path):
        connection = connect(path)
        assert connection is not None
        assert peer_pid(connection) == os.getpid()
        connection.close()


def test_a_place_has_one_host_at_a_time(path: Path) -> None:
    with claimed(path) as first:
        assert first is not None
        with claimed(path) as second:
            assert second is None
        connection = connect(path)
        assert connection is not None
        connection.close()
    with claimed(path) as third:
        assert third is not None


def test_a_socket_that_was_left_behind_is_replaced(path: Path) -> None:
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(path))
    left.close()
    path.with_suffix(".lock").touch()
    assert connect(path) is None
    with claimed(path) as listener:
        assert listener is not None
        connection = connect(path)
        assert connection is not None
        connection.close()


def claim_and_die(path: Path) -> None:
    with claimed(path) as listener:
        os._exit(0 if listener is not None else 1)


def test_a_host_that_was_killed_leaves_the_place_free(path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=claim_and_die, args=(path,))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert path.exists()
    with claimed(path) as listener:
        assert listener is not None


def test_sweeping_removes_what_killed_hosts_left_and_nothing_else(path: Path) -> None:
    folder = path.parent
    for name in ("killed.sock", "killed.lock", "lock-alone.lock", "other.txt"):
        (folder / name).touch()
    with claimed(path):
        sweep(folder)
        left = {entry.name for entry in folder.iterdir()}
        assert left == {"here.sock", "here.lock", "other.txt"}
        connection = connect(path)
        assert connection is not None
        connection.close()


def test_a_lock_that_was_removed_after_it_was_opened_does_not_count(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody opens the lock file, then its holder ends and removes it, then somebody locks it."""
    opened: list[int] = []
    real = os.open

    def slow(*arguments: object) -> int:
        descriptor = real(*arguments)
        opened.append(descriptor)
        if len(opened) == 1:
            path.with_suffix(".lock").unlink()
        return descriptor

    monkeypatch.setattr(rendezvous.os, "open", slow)
    with claimed(path) as listener:
        assert listener is not None
        assert len(opened) == 2
        monkeypatch.undo()
        with claimed(path) as second:
            assert second is None


def test_a_place_that_can_not_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), claimed(tmp_path / "gone" / "here.sock"):
        pass
    with pytest.raises(OSError, match="too long"):
        connect(tmp_path / ("x" * 200))
