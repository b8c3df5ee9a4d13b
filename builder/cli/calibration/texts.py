"""Reads what a model is calibrated with: Forerun's own prompts, or a text or JSONL file of the user's.

A line of JSONL is an object with one of `text` (as it stands), `prompt` (asked by a user) and `messages` (a chat).
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from builder.errors import UserError
from builder.gate.text import Dialogue, read_passage

OWN = Path(__file__).with_name("prompts.jsonl")
OWN_NAME = "Forerun's calibration prompts, version 1"
JSON_LINES = (".jsonl", ".ndjson")
MAX_SAMPLES = 512
"""Taken of a file unless the user says how many."""

Sample = str | Dialogue
"""A text as it stands, or a chat."""


@dataclass(frozen=True, slots=True)
class CalibrationText:
    """The samples of a file, not yet tokens."""

    name: str
    sha256: str
    """Of the whole file."""
    samples: tuple[Sample, ...]
    is_own: bool = False
    """Whether it is Forerun's, which nobody asked for."""


class Line(msgspec.Struct):
    """A line of JSONL; other fields, such as ids, are the user's own affair."""

    text: str | None = None
    prompt: str | None = None
    messages: Dialogue | None = None


def read_calibration_text(path: Path | None, num_samples: int | None) -> CalibrationText:
    """Read the first samples of a file, or of Forerun's own prompts.

    Raises:
        UserError: the file can't be read, a line of it is no sample, or it has none.
    """
    passage, sha256 = read_passage(OWN if path is None else path, "--calib")
    is_lines = path is None or path.suffix.lower() in JSON_LINES
    samples = _lines(passage, path or OWN) if is_lines else (passage,) if passage.strip() else ()
    if not samples:
        raise UserError(
            f"--calib {path} is empty; give some text, or leave it out for Forerun's own"
        )
    name = OWN_NAME if path is None else path.name
    return CalibrationText(name, sha256, samples[: num_samples or MAX_SAMPLES], path is None)


def _lines(passage: str, path: Path) -> tuple[Sample, ...]:
    lines = enumerate(passage.split("\n"), start=1)
    return tuple(_sample(line, f"--calib {path}, line {n}") for n, line in lines if line.strip())


def _sample(line: str, where: str) -> Sample:
    """Read a line of JSONL.

    Raises:
        UserError: names the line, never what it says.
    """
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, RecursionError) as error:
        kind = "another shape" if isinstance(error, msgspec.ValidationError) else "no JSON"
        raise UserError(
            f'{where} has {kind}; a line is {{"text": "..."}}, {{"prompt": "..."}} or {{"messages": [...]}}'
        ) from None  # the cause may quote the text
    given = [each for each in (read.text, read.prompt, read.messages) if each is not None]
    if len(given) != 1:
        raise UserError(f"{where} has {len(given)} of text, prompt and messages; it must have one")
    if read.prompt is not None:
        return ({"role": "user", "content": read.prompt},)
    return read.text if read.text is not None else read.messages or ()
