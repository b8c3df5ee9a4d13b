from pathlib import Path

import pytest

from builder.checkpoint.files import (
    MAX_TEXT_BYTES,
    map_file,
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


@pytest.mark.parametrize("read", [read_bytes, read_json, read_text, map_file])
def test_a_missing_file_is_named(read, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent\.json"):
        read(tmp_path / "absent.json")


def test_a_file_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as stream:
        stream.truncate(MAX_TEXT_BYTES + 1)
    with pytest.raises(CheckpointError, match="more than the"):
        read_bytes(path)


def test_an_empty_file_and_a_folder_are_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(CheckpointError, match="is empty"):
        map_file(tmp_path / "empty")
    with pytest.raises(CheckpointError, match="is not a file"):
        map_file(tmp_path)


def test_a_mapped_file_is_read_only_bytes(tmp_path: Path) -> None:
    (tmp_path / "m").write_bytes(b"abc")
    mapped = map_file(tmp_path / "m")
    assert mapped.tobytes() == b"abc"
    assert not mapped.flags.writeable
