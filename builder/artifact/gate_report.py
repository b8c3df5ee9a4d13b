"""What a quality gate found: `reports/gate.json`, bound to its artifact by the manifest's digest.

`builder verify --against` writes it. What serves an artifact reads it first and refuses one that missed its gate.
An artifact has one report: that of its last gate, whichever engine it judged.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from builder.artifact.manifest import Manifest, Source
from builder.artifact.report_file import read_file
from builder.errors import ArtifactError

SCHEMA = 1
PLACE = "reports/gate.json"
AGAIN = "run builder verify --against again, or remove it"

Verdict = Literal["met", "missed"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A figure beside its threshold."""

    name: str
    value: float
    side: Literal["at most", "at least"]
    threshold: float

    @property
    def is_met(self) -> bool:
        """Whether the figure is on the allowed side of the threshold, or on it."""
        if self.side == "at most":
            return self.value <= self.threshold
        return self.value >= self.threshold

    def __str__(self) -> str:
        return f"{self.name} {self.value:.4g}, {self.side} {self.threshold:g}"


@dataclass(frozen=True, slots=True)
class TextRecord:
    """The text that was read, and how it was cut."""

    name: str
    sha256: str
    num_tokens: int
    """Without what the model itself puts before a text."""
    num_judged: int
    """Tokens whose probability was compared: all but the first of a chunk."""
    num_chunks: int


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """Greedy answers to questions that have one right answer."""

    questions_sha256: str
    num_asked: int
    num_equal: int
    """Answers whose tokens are those of the reference's."""
    num_right: int
    num_right_of_reference: int


@dataclass(frozen=True, slots=True)
class GateReport:
    """The whole of `reports/gate.json`."""

    schema: int
    digest: str
    """Of the manifest of the artifact that was judged."""
    version: str
    """Forerun's version."""
    target: str
    """Whose engine was judged."""
    precision: str
    """What was asked of its weights, such as `int8`."""
    kv: str
    """What keys and values are stored in."""
    reference: Source
    """The checkpoint, which was read in float32."""
    reference_target: str
    text: TextRecord
    perplexity: float
    reference_perplexity: float
    answers: AnswerCounts
    judgements: tuple[Judgement, ...]
    verdict: Verdict

    @property
    def missed(self) -> tuple[Judgement, ...]:
        """The figures beyond their thresholds."""
        return tuple(judgement for judgement in self.judgements if not judgement.is_met)

    @property
    def missed_line(self) -> str:
        """Name the figures beyond their thresholds, with both numbers."""
        return "; ".join(map(str, self.missed))


def verdict_of(judgements: tuple[Judgement, ...]) -> Verdict:
    """Say whether all thresholds are met."""
    return "met" if all(judgement.is_met for judgement in judgements) else "missed"


def encode(report: GateReport) -> bytes:
    """Give the report as JSON; equal reports give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2) + b"\n"


def decode(data: bytes) -> GateReport:
    """Read a report.

    Raises:
        ArtifactError: not JSON, of another schema, with a wrong or missing field, or at odds with itself.
    """
    try:
        report = msgspec.json.decode(data, type=GateReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{PLACE} can't be read: {error}; {AGAIN}") from error
    if report.schema != SCHEMA:
        raise ArtifactError(
            f"{PLACE} has schema {report.schema}, this version of Forerun reads schema {SCHEMA}; {AGAIN}"
        )
    if not report.judgements or report.verdict != verdict_of(report.judgements):
        raise ArtifactError(f"{PLACE} says {report.verdict}, which its figures contradict; {AGAIN}")
    return report


def read_report(root: Path) -> GateReport | None:
    """Read the report of the artifact at `root`; None where there is none.

    Raises:
        ArtifactError: it can't be read.
    """
    return read_file(root / PLACE, decode, AGAIN)


def write_report(root: Path, report: GateReport) -> None:
    """Write the report of the artifact at `root`, whole or not at all, in place of an older one."""
    path = root / PLACE
    path.parent.mkdir(exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes(encode(report))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_gate(
    root: Path, manifest: Manifest, *, allow_missed: bool, warn: Callable[[str], None]
) -> None:
    """Refuse the artifact at `root` if it missed its gate, or waits for it; `warn` hears what is allowed or does not count.

    Raises:
        ArtifactError: the gate was missed, or not held though asked for, and that is not allowed; or the report can't be read.
    """
    report = read_report(root)
    if report is not None and report.digest != manifest.digest:
        warn(f"{PLACE} in {root} is about another artifact and does not count; {AGAIN}")
        report = None
    if report is None:
        if not manifest.is_gated:
            return
        line = f"{root} was compiled with --gate and has not been judged"
        remedy = "run builder verify --against"
    elif report.verdict == "missed":
        line = f"{root} missed its quality gate: {report.missed_line}"
        remedy = "compile the model in another format"
    else:
        return
    if not allow_missed:
        raise ArtifactError(f"{line}; {remedy}, or add --allow-missed-gate to run it all the same")
    warn(f"{line}; it runs all the same, as --allow-missed-gate says")
