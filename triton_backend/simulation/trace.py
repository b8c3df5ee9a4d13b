"""Traces: who came when, recorded as CSV with a header or as lines of JSON.

A file is read line by line within bounds, each field typed and bounded; a refusal names the line.
"""

import csv
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, TextIO

from msgspec import Meta, Struct
from msgspec.structs import asdict

from builder.errors import UserError
from triton_backend.request import MAX_PRIORITY
from triton_backend.simulation.arrivals import MAX_REQUESTS, Arrival
from triton_backend.simulation.lengths import MAX_LENGTH
from triton_backend.simulation.typed import of_json, of_texts

MAX_LINE = 65_536
"""Characters of a line."""
MAX_AT_S = 1e10
"""Seconds since 1970 are below it, milliseconds are not."""
Length = Annotated[int, Meta(ge=1, le=MAX_LENGTH)]
Name = Annotated[str, Meta(max_length=256)]


class Line(Struct, frozen=True, forbid_unknown_fields=True):
    """The fields of a line. Times may count from anywhere."""

    at_s: Annotated[float, Meta(ge=0, le=MAX_AT_S)]
    num_prompt: Length
    num_answer: Length
    tenant: Name = ""
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    prefix: Name = ""
    num_prefix: Annotated[int, Meta(ge=0, le=MAX_LENGTH)] = 0


def read_trace(path: Path) -> list[Arrival]:
    """Read arrivals from CSV, or from lines of JSON (`.jsonl`, `.json`), in order of time; the first comes at 0 s.

    Raises:
        UserError: names the line that can't be used, and why.
    """
    rows = _of_json if path.suffix in (".jsonl", ".json") else _of_csv
    try:
        # The mark that some programs write at the start of UTF-8 is no part of the first name.
        with path.open(encoding="utf-8-sig", newline="") as file:
            arrivals = list(rows(path, _lines(path, file)))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} can't be read: {error}") from error
    if not arrivals:
        raise UserError(f"{path} has no requests; from 1 to {MAX_REQUESTS} are allowed")
    first_s = min(arrival.at_s for arrival in arrivals)
    counted = [replace(arrival, at_s=arrival.at_s - first_s) for arrival in arrivals]
    return sorted(counted, key=lambda arrival: arrival.at_s)


def _lines(path: Path, file: TextIO) -> Iterator[str]:
    """Give the lines of a file, none before the one in front of it was used."""
    # One more than there are requests, for the header.
    for number in range(1, MAX_REQUESTS + 2):
        line = file.readline(MAX_LINE + 1)
        if len(line) > MAX_LINE:
            raise UserError(f"{path} line {number} has more than {MAX_LINE} characters")
        if not line:
            return
        yield line
    if file.readline(1):
        raise UserError(f"{path} has more than {MAX_REQUESTS} requests; cut it into parts")


def _of_json(path: Path, lines: Iterable[str]) -> Iterator[Arrival]:
    for number, line in enumerate(lines, 1):
        if line.strip():
            place = f"{path} line {number}"
            yield _arrival(place, of_json(place, line, Line))


def _of_csv(path: Path, lines: Iterable[str]) -> Iterator[Arrival]:
    reader = csv.DictReader(lines)
    try:
        names = reader.fieldnames or ()
        if len(set(names)) < len(names):
            raise UserError(f"{path} line 1 names a column twice; leave one of them out")
        for row in reader:
            place = f"{path} line {reader.line_num}"
            if None in row:
                raise UserError(f"{place} has more cells than line 1 has names")
            yield _arrival(place, of_texts(place, row, Line))
    except csv.Error as error:
        raise UserError(f"{path} line {reader.reader.line_num} is not CSV: {error}") from error


def _arrival(place: str, line: Line) -> Arrival:
    if line.num_prefix >= line.num_prompt:
        raise UserError(f"{place}: num_prefix must be below num_prompt")
    return Arrival(**asdict(line), place=place)
