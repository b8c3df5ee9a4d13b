"""What an artifact was calibrated with, and what came of it: `reports/calibration.json`, one of the manifest's files."""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from builder.artifact.report_file import read_file
from builder.errors import ArtifactError

SCHEMA = 1
PLACE = "reports/calibration.json"
AGAIN = "compile the model again"


@dataclass(frozen=True, slots=True)
class SampleRecord:
    """The text that was calibrated with, and how much of it there was."""

    name: str
    sha256: str
    num_samples: int
    num_tokens: int
    """Of all samples."""
    num_text_tokens: int
    """Those that stand for text: without control tokens."""
    num_measured: int
    """Tokens that scales were made from."""
    num_checked: int
    """Tokens that clipping was counted on."""
    is_held_out: bool
    """Whether scales were made without the tokens that clipping was counted on."""
    warning: str | None
    """That they are too few, where they are."""


@dataclass(frozen=True, slots=True)
class QuantizerRecord:
    """One tensor of scales: of the rows that a layer multiplies (`.input`), of its weights, or of its keys or values."""

    name: str
    tokens: int
    """That the layer saw in one pass over the samples."""
    amax: float
    """Largest magnitude that it was made for; of several scales, the largest."""
    scale: float | None
    """As the checkpoint has it; None where it has several."""
    clipped: float
    """Share of numbers beyond `amax`, or beyond that of their own part."""


@dataclass(frozen=True, slots=True)
class SearchRecord:
    """Formats that were chosen for each layer, under a budget of bits for a weight on average."""

    asked_bits: float
    bits: float
    """Of the layers that were chosen for: the head is not among them."""
    layers: dict[str, str]
    """Format of each, or `float`."""


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """The whole of `reports/calibration.json`."""

    schema: int
    version: str
    """Forerun's version."""
    tool: str
    """What calibrated, with its version."""
    format: str
    group: int
    """Inputs that share a scale where the format has a choice, else 0."""
    kv: str | None
    """What keys and values were calibrated for, if they were."""
    samples: SampleRecord
    quantizers: tuple[QuantizerRecord, ...]
    search: SearchRecord | None = None

    @property
    def most_clipped(self) -> QuantizerRecord:
        """The quantizer with the largest share of clipped numbers, the first of several."""
        return max(self.quantizers, key=lambda record: record.clipped)


def encode(report: CalibrationReport) -> bytes:
    """Give the report as JSON; equal reports give equal bytes."""
    return msgspec.json.format(msgspec.json.encode(report, order="deterministic"), indent=2) + b"\n"


def decode(data: bytes) -> CalibrationReport:
    """Read a report.

    Raises:
        ArtifactError: not JSON, of another schema, or with a wrong or missing field.
    """
    try:
        report = msgspec.json.decode(data, type=CalibrationReport)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ArtifactError(f"{PLACE} can't be read: {error}; {AGAIN}") from error
    if report.schema != SCHEMA or not report.quantizers:
        raise ArtifactError(
            f"{PLACE} has schema {report.schema} and {len(report.quantizers)} quantizers; this version of Forerun reads "
            f"schema {SCHEMA}, with at least one; {AGAIN}"
        )
    return report


def read_calibration(root: Path) -> CalibrationReport | None:
    """Read the report of the artifact at `root`; None where there is none.

    Raises:
        ArtifactError: it can't be read.
    """
    return read_file(root / PLACE, decode, AGAIN)


def write_calibration(root: Path, report: CalibrationReport) -> None:
    """Write the report into the folder of an artifact that is being made."""
    path = root / PLACE
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(report))
