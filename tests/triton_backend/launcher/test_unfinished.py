"""Engine hosts say how many answers they have not finished; those that say nothing have none."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from builder.artifact.config import Limits
from triton_backend.launcher import unfinished
from triton_backend.launcher.unfinished import UnfinishedAnswers
from triton_backend.link import Link
from triton_backend.messages import FromFront, FromHost, Hello, Join, Ping, Pong

LIMITS = Limits(max_seq_len=8, max_num_seqs=2, max_num_tokens=8, max_logit_rows=2, num_blocks=9)
HELLO = Hello(version=1, digest="", vocab_size=8, limits=LIMITS)


def pong(*, running: int, waiting: int) -> Pong:
    return Pong(
        num_running=running,
        num_waiting=waiting,
        num_blocks=8,
        num_used_blocks=0,
        num_cached_blocks=0,
    )


class Host:
    """A process whose command line names the socket of a scripted host."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def cmdline(self) -> list[str]:
        return ["python", "-m", "triton_backend.host", "--socket", str(self.path)]


@contextmanager
def host(path: Path, *answers: FromHost) -> Iterator[Host]:
    """Answer what a front says, one message after the other, then hang up."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            link: Link[FromFront] = Link(connection, FromFront)
            for answer, kind in zip(answers, [Join, *[Ping] * len(answers)], strict=False):
                assert isinstance(link.receive(), kind)
                link.send(answer)
            link.close()

        thread = threading.Thread(target=serve)
        thread.start()
        yield Host(path)
        thread.join()


def test_running_and_waiting_answers_of_all_hosts_are_counted(tmp_path: Path) -> None:
    one = host(tmp_path / "one", HELLO, pong(running=2, waiting=1), pong(running=1, waiting=0))
    other = host(tmp_path / "other", HELLO, pong(running=0, waiting=4), pong(running=0, waiting=0))
    with one as first, other as second, UnfinishedAnswers([first, second]) as answers:
        assert answers.count() == 7
        assert answers.count() == 1


def test_a_host_that_ends_meanwhile_has_none(tmp_path: Path) -> None:
    with host(tmp_path / "one", HELLO) as only, UnfinishedAnswers([only]) as answers:
        assert answers.count() == 0
        assert answers.count() == 0


def test_a_host_that_does_not_take_us_in_has_none(tmp_path: Path) -> None:
    with host(tmp_path / "one") as only, UnfinishedAnswers([only]) as answers:
        assert answers.count() == 0


def test_a_host_that_is_gone_has_none(tmp_path: Path) -> None:
    with UnfinishedAnswers([Host(tmp_path / "nowhere")]) as answers:
        assert answers.count() == 0


def test_a_host_that_is_just_loading_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unfinished, "TIMEOUT_S", 0.05)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "silent"))
        listener.listen()
        with UnfinishedAnswers([Host(tmp_path / "silent")]) as answers:
            assert answers.count() == 0
