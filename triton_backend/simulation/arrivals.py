"""Who comes when, with how long a prompt and how long an answer: drawn, or read from a trace.

Times are seconds from the start, lengths are tokens.
"""

import csv
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from builder.errors import UserError
from triton_backend.simulation.lengths import Lengths

MAX_TRACE = 1_000_000


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request that will come."""

    at_s: float
    num_prompt: int
    num_answer: int
    tenant: str = ""
    priority: int = 0
    prefix: str = ""
    """Names what its prompt begins with; requests of the same prefix share its tokens."""
    num_prefix: int = 0
    """Tokens of the prefix, of the prompt's."""


def draw_arrivals(
    count: int,
    *,
    prompt: Lengths,
    answer: Lengths,
    max_seq_len: int,
    seed: int,
    num_tenants: int = 1,
) -> list[Arrival]:
    """Draw a Poisson stream of one request a second on average; see `at_rate`.

    Prompts leave room for one token at least, answers fit behind them. One seed gives one stream: the same lengths
    and the same spacing at every rate, so that rates and policies are compared on the same requests. Of the tenants,
    the n-th has an n-th of the first one's requests.
    """
    random = Random(seed)  # noqa: S311 - nothing secret is drawn
    # A generator of its own, so that the number of tenants changes nothing else.
    tenants = Random(seed).choices(  # noqa: S311
        [str(number) for number in range(1, num_tenants + 1)],
        [1 / number for number in range(1, num_tenants + 1)],
        k=count,
    )
    arrivals, now = [], 0.0
    for tenant in tenants:
        now += random.expovariate(1.0)
        num_prompt = prompt.draw(random, max_seq_len - 1)
        num_answer = answer.draw(random, max_seq_len - num_prompt)
        arrivals.append(Arrival(now, num_prompt, num_answer, tenant=tenant))
    return arrivals


def at_rate(arrivals: Sequence[Arrival], per_s: float) -> list[Arrival]:
    """Stretch or squeeze time so that so many requests come per second on average."""
    factor = mean_rate(arrivals) / per_s
    return [replace(arrival, at_s=arrival.at_s * factor) for arrival in arrivals]


def mean_rate(arrivals: Sequence[Arrival]) -> float:
    """Give the requests per second, up to the last arrival.

    Raises:
        UserError: all come at once.
    """
    if arrivals[-1].at_s <= 0:
        raise UserError("all requests of the trace come at 0 s, so it has no rate to change")
    return len(arrivals) / arrivals[-1].at_s


def read_trace(path: Path) -> list[Arrival]:
    """Read arrivals from CSV with a header, or from lines of JSON (`.jsonl`, `.json`), in order of time.

    Fields: `at_s`, `num_prompt`, `num_answer`; optional `tenant`, `priority`, `prefix`, `num_prefix`.

    Raises:
        UserError: names the line that can't be used, and why.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} can't be read: {error}") from error
    rows: Iterable[tuple[int, Any]]
    if path.suffix in (".jsonl", ".json"):
        rows = ((n, _json(path, n, line)) for n, line in enumerate(text.splitlines(), 1) if line)
    else:
        rows = enumerate(csv.DictReader(text.splitlines()), 2)
    arrivals = [_arrival(f"{path} line {number}", row) for number, row in rows]
    if not 1 <= len(arrivals) <= MAX_TRACE:
        raise UserError(f"{path} has {len(arrivals)} requests; from 1 to {MAX_TRACE} are allowed")
    return sorted(arrivals, key=lambda arrival: arrival.at_s)


def _json(path: Path, number: int, line: str) -> object:
    try:
        return json.loads(line)
    except ValueError as error:
        raise UserError(f"{path} line {number} is not JSON: {error}") from error


REQUIRED = {"at_s": float, "num_prompt": int, "num_answer": int}
OPTIONAL = {"tenant": str, "priority": int, "prefix": str, "num_prefix": int}


def _arrival(place: str, row: object) -> Arrival:
    """Make an arrival of the fields of one line."""
    if not isinstance(row, Mapping):
        raise UserError(f"{place} must be an object with {', '.join(REQUIRED)}")
    known = REQUIRED | OPTIONAL
    unknown = [str(name) for name in row if name not in known]
    missing = [name for name in REQUIRED if row.get(name) in (None, "")]
    if unknown or missing:
        raise UserError(
            f"{place} must have {', '.join(REQUIRED)} and may have {', '.join(OPTIONAL)};"
            f" missing: {', '.join(missing) or 'none'}, unknown: {', '.join(unknown) or 'none'}"
        )
    values: dict[str, Any] = {}
    for name, value in row.items():
        if value in (None, ""):
            continue
        try:
            values[name] = known[name](value)
        except (TypeError, ValueError) as error:
            raise UserError(f"{place}: {name} can't be read as {known[name].__name__}") from error
    arrival = Arrival(**values)
    if not 0 <= arrival.at_s < 1e9 or min(arrival.num_prompt, arrival.num_answer) < 1:
        raise UserError(f"{place}: at_s must be from 0, num_prompt and num_answer from 1")
    if not 0 <= arrival.num_prefix < arrival.num_prompt:
        raise UserError(f"{place}: num_prefix must be from 0 to below num_prompt")
    return arrival
