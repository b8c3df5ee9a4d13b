"""A log is kept if a front or an engine host told of a failure in it, and only its owner reads the copy."""

import stat
import tempfile
from pathlib import Path

import pytest

from triton_backend.launcher.kept_log import keep_log

TRITONS = b"E1130 08:00:00.000001 7 server.cc:1] its own ERROR front\nINFO front chat: joined\n"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.mark.parametrize("who", [b"front chat", b"engine host 7"])
def test_a_log_that_tells_of_a_failure_is_kept_whole(
    who: bytes, tmp_path: Path, temporary: Path
) -> None:
    text = TRITONS + b"ERROR " + who + b": a step failed\n  at engine.py\n" + TRITONS
    (tmp_path / "log").write_bytes(text)
    kept = keep_log(tmp_path / "log")
    assert kept is not None
    assert (kept.parent, kept.read_bytes()) == (temporary, text)
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_of_a_log_that_tells_of_none_nothing_is_kept(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "log").write_bytes(TRITONS)
    assert keep_log(tmp_path / "log") is None
    assert list(temporary.iterdir()) == []
