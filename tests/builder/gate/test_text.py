"""The text that ships, texts of the user's, and what counts as a right answer."""

import hashlib
import os
from pathlib import Path

import pytest

from builder.errors import UserError
from builder.gate.text import (
    MAX_BYTES,
    Question,
    own_text,
    questions,
    questions_sha256,
    read_text,
)


def test_our_text_is_prose_lists_code_and_conversations() -> None:
    text = own_text()
    assert text == own_text()
    assert len(text.passages) == 3
    assert all(len(passage) > 1000 for passage in text.passages)
    roles = [[turn["role"] for turn in dialogue] for dialogue in text.dialogues]
    assert roles
    assert all(each == ["user", "assistant"] * (len(each) // 2) for each in roles)


def test_questions_are_many_and_none_comes_twice() -> None:
    assert len({question.prompt for question in questions()}) == len(questions()) >= 20
    assert len(questions_sha256()) == 64


def test_a_file_is_one_passage_named_by_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("Grüße")
    text = read_text(tmp_path / "mine.txt")
    assert (text.name, text.passages, text.dialogues) == ("mine.txt", ("Grüße",), ())
    assert text.sha256 == hashlib.sha256("Grüße".encode()).hexdigest()


def test_a_file_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--text .*none\.txt can't be read: No such file"):
        read_text(tmp_path / "none.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"bad\.txt is not UTF-8; give a plain text file"):
        read_text(tmp_path / "bad.txt")


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "large.txt").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(UserError, match=r"--text .*large\.txt has more than 4 MiB; give a part"):
        read_text(tmp_path / "large.txt")


def test_what_may_never_end_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(UserError, match=f"--text {path} is not a regular file"):
            read_text(path)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The answer is 7.", True),
        ("SEVEN days", True),
        ("17", False),
        ("7th", False),
        ("seventeen", False),
        ("", False),
    ],
)
def test_a_right_word_must_stand_by_itself(answer: str, is_right: bool) -> None:
    assert Question("How many?", ("7", "seven")).is_answered_by(answer) is is_right
