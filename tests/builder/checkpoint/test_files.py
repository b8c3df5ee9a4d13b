import os
from pathlib import Path

import pytest

from builder.checkpoint.files import (
    MAX_TEXT_BYTES,
    open_file,
    parse_json,
    read_bytes,
    read_json,
    read_text,
)
from builder.errors import CheckpointError


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[1]", "must hold a JSON object, not a list"),
        ('{"a": 1, "a": 2}', "key 'a' appears twice"),
        ('{"a": {"b": 1, "b": 2}}', "key 'b' appears twice"),
        ('{"a": NaN}', "NaN is not a finite number"),
        ('{"a": -Infinity}', "-Infinity is not a finite number"),
        ('{"a": 1e999}', "1e999 is not a finite number"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_is_not_one_strict_object_is_refused(text: str, reason: str) -> None:
    with pytest.raises(CheckpointError, match=reason):
        parse_json(text.encode(), "config.json")


def test_json_keeps_numbers_as_they_are_written() -> None:
    assert parse_json(b'{"a": 1, "b": 1.5, "c": 1e-05}', "x") == {"a": 1, "b": 1.5, "c": 1e-05}


def test_text_that_is_not_utf8_is_refused_with_the_place(tmp_path: Path) -> None:
    (tmp_path / "t.jinja").write_bytes(b"abc\xff")
    with pytest.raises(CheckpointError, match=r"t\.jinja is not UTF-8 text \(byte 3\)"):
        read_text(tmp_path / "t.jinja")


@pytest.mark.parametrize("read", [read_bytes, read_json, read_text, open_file])
def test_a_missing_file_is_named(read, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.json"):
        read(tmp_path / "absent.json")


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_TEXT_BYTES + 1)
    with pytest.raises(CheckpointError, match="more than the"):
        read_bytes(path)


def test_an_empty_file_and_a_folder_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(CheckpointError, match="is empty"):
        open_file(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="is not a file"):
        open_file(tmp_path)


def test_parts_of_a_file_are_read_only_bytes(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"abcdef")
    whole = open_file(tmp_path / "m")
    part = whole.part(1, 5).part(1, 3)
    assert (len(whole), len(part)) == (6, 2)
    assert whole.read().tobytes() == b"abcdef"
    assert part.read().tobytes() == b"cd"
    assert not part.read().flags.writeable


def test_a_file_that_is_cut_short_or_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    """Of a mapped file, the system would kill the process."""
    path = tmp_path / "m"
    path.write_bytes(bytes(100_000))
    part = open_file(path).part(50_000, 100_000)
    os.truncate(path, 60_000)
    with pytest.raises(CheckpointError, match="m became shorter while it was read"):
        part.read()
    path.unlink()
    with pytest.raises(CheckpointError, match="cannot read"):
        part.read()
