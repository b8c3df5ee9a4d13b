"""Artifacts with the report of a gate that they missed."""

from pathlib import Path

from builder.artifact.gate_report import (
    AnswerCounts,
    GateReport,
    Judgement,
    TextRecord,
    write_report,
)
from builder.artifact.store import read_manifest


def write_missed_report(root: Path, *, digest: str | None = None) -> None:
    """Write a report of the artifact at `root`, or of one with another digest."""
    manifest = read_manifest(root)
    report = GateReport(
        schema=1,
        digest=manifest.digest if digest is None else digest,
        version="0.1.0",
        target="cpu",
        precision="float32",
        kv="float32",
        reference=manifest.source,
        reference_target="cpu",
        text=TextRecord("text", "00", 10, 9, 1),
        perplexity=3.0,
        reference_perplexity=2.0,
        answers=AnswerCounts("00", 1, 0, 0, 1),
        judgements=(Judgement("kl_mean", 9.0, "at most", 1.0),),
        verdict="missed",
    )
    write_report(root, report)
