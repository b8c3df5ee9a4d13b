"""Keys are read as clients can send them, and a file that closes nothing is refused."""

from pathlib import Path

import pytest

from builder.cli.keys import read_keys
from builder.errors import UserError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def test_keys_are_lines(file: Path) -> None:
    file.write_text("  one \n\ntwo\r\n")
    assert read_keys(file) == ("one", "two")


def test_the_mark_that_some_editors_begin_a_file_with_is_no_part_of_a_key(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbfone\n")
    assert read_keys(file) == ("one",)


def test_without_a_file_no_key_is_needed() -> None:
    assert read_keys(None) == ()


@pytest.mark.parametrize("text", ["", "\n  \n", "\ufeff\n"])
def test_a_file_without_a_key_is_refused(file: Path, text: str) -> None:
    """It would leave open what it was given to close."""
    file.write_text(text, "utf-8")
    with pytest.raises(UserError, match="holds no key"):
        read_keys(file)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00k", b"\x80\x81"])
def test_a_file_that_is_no_text_is_refused(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(UserError, match="is not text; write one key a line"):
        read_keys(file)


@pytest.mark.parametrize("key", ["two words", "schl\u00fcssel", "a\x00b", "a\x1bb"])
def test_a_key_that_no_client_could_send_is_refused_and_not_told(file: Path, key: str) -> None:
    file.write_text(f"fine\n{key}\n")
    with pytest.raises(UserError, match="keys:2: a key must be ASCII") as refusal:
        read_keys(file)
    assert key not in str(refusal.value)


def test_a_file_that_is_not_there_is_refused(file: Path) -> None:
    with pytest.raises(UserError, match="there is no file of keys at"):
        read_keys(file)
