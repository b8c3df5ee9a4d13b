"""Joining a host: it is found or started, and whatever is wrong with it is said in one line."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builder.artifact import manifest as manifests
from builder.artifact.config import Limits
from builder.errors import ArtifactError
from tests.triton_backend.host_stage import PATIENCE_S
from triton_backend import attach as attaching
from triton_backend.attach import AttachError, HostDoor, HostPlace, find_place
from triton_backend.config import EngineConfig
from triton_backend.front_settings import FrontSettings
from triton_backend.link import Link
from triton_backend.messages import VERSION, Failed, FromFront, Hello, Join, Pong
from triton_backend.rendezvous import claimed

DIGEST = "ab" * 32
HELLO = Hello(VERSION, DIGEST, 50, Limits(8, 2, 8, 2, 9))


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


@pytest.fixture
def place(tmp_path: Path) -> HostPlace:
    return HostPlace(tmp_path / "here.sock", DIGEST, python("raise SystemExit(3)"))


class Speaker:
    """A host that says one thing to the first front that joins, and ends."""

    def __init__(self, path: Path, says: Any) -> None:
        self.heard: list[Any] = []
        self._stack = ExitStack()
        self._listener = self._stack.enter_context(claimed(path))
        self._thread = threading.Thread(target=self._speak, args=(says,))
        self._thread.start()

    def _speak(self, says: Any) -> None:
        assert self._listener is not None
        connection, _ = self._listener.accept()
        self._listener.close()
        link: Link[FromFront] = Link(connection, FromFront)
        self.heard.append(link.receive())
        if isinstance(says, bytes):
            connection.sendall(says)
        elif says is not None:
            link.send(says)
        link.close()

    def close(self) -> None:
        self._thread.join(PATIENCE_S)
        self._stack.close()


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
    def socket(server: str = "7", **given: Any) -> Path:
        return find_place(settings(tiny_artifact, **given), server=server, folder=tmp_path).socket

    assert socket() == socket(face="vllm")
    assert len({socket(), socket(server="8"), socket(deployment="other")}) == 3


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


def test_an_artifact_that_is_missing_is_told_before_any_host_starts(tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="there is no artifact at"):
        find_place(settings(tmp_path / "gone"), server="7", folder=tmp_path)
