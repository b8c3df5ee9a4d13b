"""What no host could serve is not loaded again and again, and what one could is."""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.triton_backend.attach_stage import Speaker, make_place, python
from triton_backend import attach as attaching
from triton_backend.attach import AttachError, HostDoor, HostPlace
from triton_backend.messages import Failed

NOTES_AND_FAILS = "open({!r}, 'a').write('x'); raise SystemExit(2)"
"""Stands in for a host that could be started in vain."""


@pytest.fixture
def place(tmp_path: Path) -> HostPlace:
    return make_place(tmp_path)


@pytest.fixture
def refused(place: HostPlace, tmp_path: Path) -> Iterator[tuple[HostDoor, Path]]:
    """A door behind which a host said that none can serve, and the file in which each further one leaves a mark."""
    marks = tmp_path / "marks"
    door = HostDoor(replace(place, command=python(NOTES_AND_FAILS.format(str(marks)))), "vllm")
    speaker = Speaker(place.socket, Failed("weights were altered", exit_code=2))
    with pytest.raises(AttachError, match=r"^weights were altered$"):
        door.attach()
    speaker.close()
    yield door, marks
    door.close()


def test_what_no_host_can_serve_is_not_tried_again(refused: tuple[HostDoor, Path]) -> None:
    door, marks = refused
    for _ in range(3):
        with pytest.raises(AttachError, match=r"^weights were altered$"):
            door.attach()
    assert not marks.exists()


def test_it_is_tried_again_when_the_manifest_was_written_anew(
    refused: tuple[HostDoor, Path], place: HostPlace
) -> None:
    door, marks = refused
    os.utime(place.manifest, ns=(0, 0))
    with pytest.raises(AttachError, match="ended with code 2 before it served"):
        door.attach()
    assert marks.read_text() == "x"


def test_it_is_tried_again_after_a_while(
    refused: tuple[HostDoor, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    door, marks = refused
    now_s = time.monotonic()
    monkeypatch.setattr(attaching.time, "monotonic", lambda: now_s + attaching.FINAL_S)
    with pytest.raises(AttachError, match="ended with code 2 before it served"):
        door.attach()
    assert marks.read_text() == "x"


def test_what_another_host_may_serve_is_tried_again_at_once(place: HostPlace) -> None:
    speaker = Speaker(place.socket, Failed("no room", exit_code=1))
    door = HostDoor(place, "vllm")
    with pytest.raises(AttachError, match=r"^no room$"):
        door.attach()
    speaker.close()
    with pytest.raises(AttachError, match="ended with code 3"):
        door.attach()


def test_no_host_is_started_for_an_artifact_that_was_replaced(
    place: HostPlace, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    door = HostDoor(replace(place, command=python(NOTES_AND_FAILS.format(str(marks)))), "vllm")
    place.manifest.write_text("{ }")
    with pytest.raises(AttachError, match="was replaced after this model was loaded; unload all"):
        door.attach()
    place.manifest.unlink()
    with pytest.raises(AttachError, match=r"artifact.json can't be read: .*; bring it back"):
        door.attach()
    assert not marks.exists()
    place.manifest.write_text("{}")
    with pytest.raises(AttachError, match="ended with code 2 before it served"):
        door.attach()
    assert marks.read_text() == "x"


def test_a_host_that_says_that_it_failed_is_told_apart_from_the_next(place: HostPlace) -> None:
    """Its end, which follows, is no failure of its own."""
    code = SAYS_AND_ENDS.format(str(place.socket))
    door = HostDoor(replace(place, command=python(code)), "vllm")
    for _ in range(2):
        with pytest.raises(AttachError, match=r"^no room$"):
            door.attach()


SAYS_AND_ENDS = """
from pathlib import Path
from triton_backend.link import Link
from triton_backend.messages import Failed, FromFront
from triton_backend.rendezvous import claimed
with claimed(Path({!r})) as listener:
    link = Link(listener.accept()[0], FromFront)
    link.receive()
    link.send(Failed("no room"))
    link.receive()
raise SystemExit(1)
"""


def test_a_host_that_ended_before_it_was_heard_is_not_tried_again_either(
    place: HostPlace, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    door = HostDoor(replace(place, command=python(NOTES_AND_FAILS.format(str(marks)))), "vllm")
    for _ in range(3):
        with pytest.raises(AttachError, match="ended with code 2 before it served"):
            door.attach()
    door.close()
    assert marks.read_text() == "x"
