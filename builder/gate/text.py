"""What engines are judged on: a text that no model was calibrated with, and questions with one right answer each.

Our own text ships in `held_out/`: prose, lists, code, and conversations that are rendered in the model's chat template.
"""

import hashlib
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import msgspec

from builder.errors import UserError

FOLDER = Path(__file__).with_name("held_out")
NAME = "Forerun's held-out text, version 1"
PASSAGES = ("prose.txt", "lists.txt", "code.txt")
DIALOGUES = "dialogues.json"
QUESTIONS = "questions.json"
MAX_BYTES = 4 << 20
"""Of a file of text, which is cut into tokens as a whole: about a million of them."""

Dialogue = tuple[dict[str, str], ...]
"""Messages with role and content."""


@dataclass(frozen=True, slots=True)
class Text:
    """A text to be read."""

    name: str
    sha256: str
    passages: tuple[str, ...]
    dialogues: tuple[Dialogue, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and the words of which any is right."""

    prompt: str
    answers: tuple[str, ...]

    def is_answered_by(self, text: str) -> bool:
        """Tell whether a right word stands in the text, whatever the case of its letters."""
        words = "|".join(map(re.escape, self.answers))
        return re.search(rf"(?<!\w)(?:{words})(?!\w)", text, re.IGNORECASE) is not None


def own_text() -> Text:
    """Read the text that ships with Forerun."""
    parts = [(FOLDER / name).read_bytes() for name in (*PASSAGES, DIALOGUES)]
    *passages, dialogues = parts
    return Text(
        NAME,
        hashlib.sha256(b"\0".join(parts)).hexdigest(),
        tuple(passage.decode() for passage in passages),
        msgspec.json.decode(dialogues, type=tuple[Dialogue, ...]),
    )


def read_text(path: Path) -> Text:
    """Read a file as one passage.

    Raises:
        UserError: it can't be read, or is no regular file, too large or not UTF-8.
    """
    passage, sha256 = read_passage(path, "--text")
    return Text(path.name, sha256, (passage,))


def read_passage(path: Path, option: str) -> tuple[str, str]:
    """Read a file that `option` names, and give its text and the sha256 of its bytes.

    Raises:
        UserError: it can't be read, or is too large or not UTF-8.
    """
    try:
        if not stat.S_ISREG(
            path.stat().st_mode
        ):  # a pipe that nobody writes to would keep a gate for ever
            raise UserError(f"{option} {path} is not a regular file; give a plain text file")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise UserError(
                f"{option} {path} has more than {MAX_BYTES >> 20} MiB; give a part of it, which is enough"
            )
        passage = data.decode()
    except OSError as error:
        raise UserError(f"{option} {path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{option} {path} is not UTF-8; give a plain text file") from error
    return passage, hashlib.sha256(data).hexdigest()


def questions() -> tuple[Question, ...]:
    """Read the questions that ship with Forerun."""
    return msgspec.json.decode((FOLDER / QUESTIONS).read_bytes(), type=tuple[Question, ...])


def questions_sha256() -> str:
    """Name the questions by their bytes."""
    return hashlib.sha256((FOLDER / QUESTIONS).read_bytes()).hexdigest()
