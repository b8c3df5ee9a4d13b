"""Fronts and the host that they start, as processes: faces share it, its end is told at once, and it follows theirs."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from tests.triton_backend.calls import PATIENCE_S, FakeCall
from tests.triton_backend.host_stage import await_true
from triton_backend import attach as attaching
from triton_backend import front as fronts
from triton_backend.attach import AttachError, HostDoor, find_place
from triton_backend.faces import FACES
from triton_backend.front import Front
from triton_backend.front_settings import FrontSettings
from triton_backend.protocol import floats, integers, strings
from triton_backend.responder import FailureKind

LONG = 10_000


@pytest.fixture
def front(
    tmp_path: Path, tiny_artifact: Path
) -> Iterator[Callable[..., tuple[Front, psutil.Process]]]:
    """Start fronts of one deployment; each comes with the process of the host it joined."""
    begun: list[Front] = []

    def begin(face: str = "forerun") -> tuple[Front, psutil.Process]:
        settings = FrontSettings(face, "chat", tiny_artifact)
        place = find_place(settings, server="tests", folder=tmp_path)
        begun.append(Front(FACES[face], HostDoor(place, face), clock=time.monotonic, on_pong=print))
        begun[-1].start()
        return begun[-1], host_of(str(place.socket))

    yield begin
    for each in reversed(begun):  # the first one started the host
        each.close()


def host_of(socket: str) -> psutil.Process:
    """Find the one process that serves a socket; those that found it at work are ending."""
    found: list[psutil.Process] = []

    def find() -> bool:
        children = psutil.Process().children()
        found[:] = [child for child in children if is_host(child, socket)]
        return len(found) == 1

    await_true(find)
    return found[0]


def is_host(process: psutil.Process, socket: str) -> bool:
    try:
        return socket in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def ask(front: Front, max_tokens: int = 5) -> FakeCall:
    call = FakeCall(
        text=strings(b"hello"),
        max_tokens=integers(max_tokens),
        temperature=floats(0),
        ignore_eos=np.array([True]),
    )
    front.take(call)
    return call


def test_faces_of_a_deployment_share_a_host(front) -> None:
    first, host = front()
    second, same = front("vllm")
    assert host == same
    call = ask(first)
    vllm = FakeCall(text_input=strings(b"hello"))
    vllm.parameters = {"max_tokens": 5, "temperature": 0}
    vllm.wanted = frozenset({"text_output"})
    second.take(vllm)
    call.await_end()
    vllm.await_end()
    (response,) = vllm.responses
    assert response["text_output"][0].decode() == "hello" + call.text


def test_requests_fail_within_a_second_when_the_host_is_killed_and_the_next_one_serves(
    front, caplog: pytest.LogCaptureFixture
) -> None:
    served, host = front()
    calls = [ask(served, LONG) for _ in range(4)]
    for call in calls:
        call.await_responses(3)
    killed_s = time.monotonic()
    host.kill()
    for call in calls:
        call.await_end()
        assert call.failure is not None
        assert call.failure.kind is FailureKind.UNAVAILABLE
    assert time.monotonic() - killed_s < 10
    await_true(served.is_ready)
    again = ask(served)
    again.await_end()
    assert len(again.text) > 0
    assert "the engine host is gone; 4 requests fail" in caplog.text
    assert "can't be joined" not in caplog.text


def test_a_host_that_hangs_is_killed_and_the_next_one_serves(
    front, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(fronts, "LOST_PINGS", 2)
    served, host = front()
    running = ask(served, LONG)
    running.await_responses(3)
    host.suspend()
    large = [FakeCall(text=strings(b"x" * 1_000_000)) for _ in range(5)]
    for call in large:
        served.take(call)
    for call in [running, *large]:
        call.await_end()
        assert call.failure == fronts.STOPPED
    assert host.wait(PATIENCE_S) in {-signal.SIGKILL, None}
    await_true(served.is_ready)
    again = ask(served)
    again.await_end()
    assert len(again.text) > 0
    assert "does not answer, and is killed" in caplog.text


def test_a_front_that_closes_does_not_wait_for_a_host_that_hangs(front) -> None:
    served, host = front()
    host.suspend()
    served.take(FakeCall(text=strings(b"x" * 1_000_000)))
    started_s = time.monotonic()
    served.close()
    assert time.monotonic() - started_s < 10 * fronts.CLOSE_S
    host.resume()
    host.wait(PATIENCE_S)


def test_a_host_that_is_told_to_stop_fails_what_runs_and_the_next_one_serves(front) -> None:
    served, host = front()
    call = ask(served, LONG)
    call.await_responses()
    host.terminate()
    call.await_end()
    assert call.failure is not None
    assert call.failure.kind is FailureKind.UNAVAILABLE
    await_true(served.is_ready)


def test_the_host_is_gone_soon_after_its_last_front_closed(front) -> None:
    served, host = front()
    served.close()
    assert host.wait(PATIENCE_S) in {0, None}


def test_a_front_says_why_its_host_can_not_load(tiny_artifact: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny_artifact, tmp_path / "copy", copy_function=shutil.copyfile)
    (copy / "tokenizer" / "tokenizer.json").write_text("{}")
    place = find_place(FrontSettings("vllm", "chat", copy), server="tests", folder=tmp_path)
    front = Front(FACES["vllm"], HostDoor(place, "vllm"), clock=time.monotonic, on_pong=print)
    with pytest.raises(AttachError, match=r"tokenizer/tokenizer.json in .*compile the model again"):
        front.start()
    front.close()


def test_an_artifact_that_was_altered_is_loaded_once_until_somebody_brings_it_back(
    tiny_artifact: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    copy = shutil.copytree(tiny_artifact, tmp_path / "copy", copy_function=shutil.copyfile)
    place = find_place(FrontSettings("forerun", "chat", copy), server="tests", folder=tmp_path)
    front = Front(FACES["forerun"], HostDoor(place, "forerun"), clock=time.monotonic, on_pong=print)
    front.start()
    started: list[str] = []
    attached: list[bool] = []
    attach, popen = HostDoor.attach, subprocess.Popen

    def count(*given: object, **options: object) -> "subprocess.Popen[bytes]":
        started.append("host")
        return popen(*given, **options)

    def noted(door: HostDoor) -> object:
        attached.append(True)
        return attach(door)

    monkeypatch.setattr(fronts, "MAX_DELAY_S", 0.05)
    monkeypatch.setattr(attaching.subprocess, "Popen", count)
    monkeypatch.setattr(HostDoor, "attach", noted)
    tokenizer = copy / "tokenizer" / "tokenizer.json"
    whole = tokenizer.read_text()
    tokenizer.write_text("{}")
    host_of(str(place.socket)).kill()
    await_true(lambda: len(attached) > 20)
    assert len(started) == 1
    assert caplog.text.count("can't be joined") == 1
    tokenizer.write_text(whole)
    place.manifest.touch()
    await_true(front.is_ready)
    call = ask(front)
    call.await_end()
    assert len(call.text) > 0
    front.close()


FRONT_PROGRAM = """
import sys, time
from pathlib import Path
from triton_backend import hosting
from triton_backend.attach import HostDoor, find_place
from triton_backend.faces import FACES
from triton_backend.front import Front
from triton_backend.front_settings import FrontSettings
place = find_place(FrontSettings("vllm", "chat", Path(sys.argv[1])), server="7", folder=Path(sys.argv[2]))
front = Front(FACES["vllm"], HostDoor(place, "vllm"), clock=time.monotonic, on_pong=print)
front.start()
print(place.socket, flush=True)
time.sleep(600)
"""


def test_a_host_does_not_outlive_a_front_that_was_killed(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    front = subprocess.Popen(
        [sys.executable, "-c", FRONT_PROGRAM, str(tiny_artifact), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert front.stdout is not None
    socket = front.stdout.readline().strip()
    (host,) = (p for p in psutil.Process(front.pid).children() if is_host(p, socket))
    front.kill()
    front.wait()
    front.stdout.close()
    host.wait(PATIENCE_S)
    assert not Path(socket).exists()
