"""Joining a host: it is found or started, and whatever is wrong with it is said in one line."""

import hashlib
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.artifact import manifest as manifests
from builder.errors import ArtifactError
from tests.triton_backend.attach_stage import DIGEST, HELLO, Speaker, make_place, python
from tests.triton_backend.host_stage import PATIENCE_S
from triton_backend import attach as attaching
from triton_backend.attach import Attached, AttachError, HostDoor, HostPlace, find_place
from triton_backend.config import EngineConfig
from triton_backend.front_settings import FrontSettings
from triton_backend.link import Link
from triton_backend.messages import VERSION, Failed, FromHost, Hello, Join, Pong


@pytest.fixture
def place(tmp_path: Path) -> HostPlace:
    return make_place(tmp_path)


@pytest.fixture
def speakers() -> Iterator[list[Speaker]]:
    made: list[Speaker] = []
    yield made
    for speaker in made:
        speaker.close()


def test_a_host_that_is_there_is_joined(place: HostPlace, speakers: list[Speaker]) -> None:
    speakers.append(Speaker(place.socket, HELLO))
    attached = HostDoor(place, "vllm").attach()
    assert attached.hello == HELLO
    assert speakers[0].heard == [Join(VERSION, "vllm")]
    attached.link.close()


OTHER_VERSION = Hello(VERSION + 1, DIGEST, 50, HELLO.limits)


@pytest.mark.parametrize(
    ("says", "message"),
    [
        (Failed("the artifact has no engine for moon"), r"^the artifact has no engine for moon$"),
        (OTHER_VERSION, rf"speaks version {VERSION + 1} of the link, we {VERSION}; unload all"),
        (
            Hello(VERSION, "cd" * 32, 50, HELLO.limits),
            r"the artifact was replaced after this model was loaded; unload all models",
        ),
        (Pong(1, 2, 3, 4, 5), r"did not say hello; unload all models"),
        (b"\x01\0\0\0\xc1", r"the engine host is of another version: a frame holds no message"),
    ],
)
def test_a_host_that_can_not_serve_us_is_an_error(
    place: HostPlace, speakers: list[Speaker], says: Any, message: str
) -> None:
    speakers.append(Speaker(place.socket, says))
    with pytest.raises(AttachError, match=message):
        HostDoor(place, "vllm").attach()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (
            "raise SystemExit(3)",
            r"the engine host ended with code 3 before it served; the log says",
        ),
        ("import os; os.kill(os.getpid(), 9)", r"the engine host ended by signal 9 before"),
    ],
)
def test_a_host_that_ends_before_it_answers_is_an_error(
    place: HostPlace, code: str, message: str
) -> None:
    door = HostDoor(replace(place, command=python(code)), "vllm")
    with pytest.raises(AttachError, match=message):
        door.attach()
    with pytest.raises(AttachError, match=message):  # and it is tried anew the next time
        door.attach()


def test_a_host_that_ends_while_it_loads_is_an_error(
    place: HostPlace, speakers: list[Speaker]
) -> None:
    speakers.append(Speaker(place.socket, None))
    with pytest.raises(AttachError, match="ended with code 3"):
        HostDoor(place, "vllm").attach()


def test_hosts_that_find_another_at_work_are_no_error(
    place: HostPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lock is held by a host that is just ending: it does not answer any more."""
    monkeypatch.setattr(attaching, "START_S", 0.5)
    code = f"open({str(tmp_path / 'started')!r}, 'a').write('x')"
    door = HostDoor(replace(place, command=python(code)), "vllm")
    with pytest.raises(AttachError, match=r"no engine host answered within 0.5 s"):
        door.attach()
    door.close()
    assert (tmp_path / "started").read_text().startswith("xx")


def test_a_host_that_hangs_is_killed_and_its_link_ends() -> None:
    ours, theirs = socket.socketpair()
    with subprocess.Popen(python("import time; time.sleep(600)")) as process, theirs:
        process.send_signal(signal.SIGSTOP)
        attached = Attached(Link(ours, FromHost), HELLO, process.pid)
        attached.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert attached.link.receive() is None
        attached.kill()  # it is gone already


def test_a_host_whose_number_is_unknown_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        attached = Attached(Link(ours, FromHost), HELLO, 0)
        attached.kill()
        assert attached.link.receive() is None


def test_closing_ends_the_wait_for_a_host(place: HostPlace) -> None:
    door = HostDoor(replace(place, command=python("import time; time.sleep(0.5)")), "vllm")
    caught: list[AttachError] = []

    def attach() -> None:
        try:
            door.attach()
        except AttachError as error:
            caught.append(error)

    thread = threading.Thread(target=attach)
    thread.start()
    door.close()
    thread.join(PATIENCE_S)
    assert [str(error) for error in caught] == ["the front is closing"]
    door.close()


def settings(artifact: Path, **given: Any) -> FrontSettings:
    return replace(FrontSettings("forerun", "chat", artifact), **given)


def test_fronts_of_one_deployment_meet_and_others_do_not(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    def place(server: str = "7", **given: Any) -> Path:
        return find_place(settings(tiny_artifact, **given), server=server, folder=tmp_path).socket

    assert place() == place(face="vllm")
    assert len({place(), place(server="8"), place(deployment="other")}) == 3


def test_an_artifact_that_was_replaced_has_another_place(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "artifact"
    copy.mkdir()
    manifest = copy / "artifact.json"
    manifest.write_bytes((tiny_artifact / "artifact.json").read_bytes())
    before = find_place(settings(copy), server="7", folder=tmp_path)
    assert before.digest == hashlib.sha256(manifest.read_bytes()).hexdigest()
    another = replace(manifests.decode(manifest.read_bytes()), version="another")
    manifest.write_bytes(manifests.encode(manifests.seal(another)))
    after = find_place(settings(copy), server="7", folder=tmp_path)
    assert (before.socket, before.digest) != (after.socket, after.digest)


def test_the_host_is_told_what_to_serve(tiny_artifact: Path, tmp_path: Path) -> None:
    engine = EngineConfig(policy="fair", speculation=True)
    asked = settings(tiny_artifact, threads=3, engine=engine)
    place = find_place(asked, server="7", folder=tmp_path, secret=Path("/private/secret"))
    assert place.command[1:4] == ("-P", "-m", "triton_backend.host")
    assert place.command[4:] == (
        *("--socket", str(place.socket), "--artifact", str(tiny_artifact)),
        *("--threads", "3"),
        *("--engine=policy=fair", "--engine=speculation=true"),
        *("--secret-file", "/private/secret"),
    )


def test_the_host_is_told_that_a_missed_gate_is_allowed(
    tiny_artifact: Path, tmp_path: Path
) -> None:
    asked = replace(settings(tiny_artifact), allow_missed_gate=True)
    place = find_place(asked, server="7", folder=tmp_path)
    assert place.command[-1] == "--allow-missed-gate"


def test_an_artifact_that_is_missing_is_told_before_any_host_starts(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="there is no artifact at"):
        find_place(settings(tmp_path / "gone"), server="7", folder=tmp_path)
