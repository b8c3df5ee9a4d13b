"""Runs a quality gate: reference and artifact read a text side by side, answer questions, and are judged."""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from builder.artifact.config import KVGeometry
from builder.artifact.gate_report import (
    SCHEMA,
    AnswerCounts,
    GateReport,
    TextRecord,
    verdict_of,
    write_report,
)
from builder.artifact.store import Artifact, open_artifact, read_manifest
from builder.cli.display import Display, Stages
from builder.cli.gate.asking import ask, prompts_for
from builder.cli.gate.encoding import CHUNK, chunks_of, encode_text
from builder.cli.interruption import stop_signals_interrupt
from builder.errors import UserError, WorkError
from builder.gate.figures import Figures
from builder.gate.reading import compare_engines
from builder.gate.reference import compiled_reference
from builder.gate.report import judgements_of
from builder.gate.text import Text, own_text, read_text
from builder.gate.thresholds import Thresholds, default_thresholds, kv_format, read_thresholds
from triton_backend.loading import LoadedModel, load_model

POOL_TOKENS = 4096
"""What the pool of an engine holds at most while it is judged: a chunk, or all questions."""


@dataclass(frozen=True, slots=True)
class GateFiles:
    """What of a gate the user may choose; None leaves what Forerun ships."""

    text: Path | None = None
    num_tokens: int | None = None
    """Of the text, from its beginning; None reads all of it."""
    thresholds: Path | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """What is asked of an artifact, all files read."""

    checkpoint: str
    precision: str
    """What was asked of its weights."""
    kv: str
    """What keys and values are stored in."""
    text: Text
    num_tokens: int | None
    thresholds: Thresholds


def make_gate(checkpoint: str, precision: str, kv: KVGeometry, *, files: GateFiles) -> Gate:
    """Read all that a gate for a precision needs beside the engines.

    Raises:
        UserError: a file can't be used, or the precision has no thresholds.
    """
    stored = kv_format(kv)
    bounds = default_thresholds(precision, stored)
    return Gate(
        checkpoint,
        precision,
        stored,
        own_text() if files.text is None else read_text(files.text),
        files.num_tokens,
        bounds if files.thresholds is None else read_thresholds(files.thresholds, bounds),
    )


def judge_artifact(
    root: Path,
    gate: Gate,
    *,
    display: Display,
    target: str | None = None,
    threads: int | None = None,
) -> GateReport:
    """Judge an engine of the artifact at `root` and write the report into it.

    Raises:
        UserError: the artifact, the checkpoint or the text can't be used.
        WorkError: the reference could not be compiled, or an engine failed.
    """
    size = sum(record.size_bytes for record in read_manifest(root).files.values())
    with stop_signals_interrupt(), display.progress() as progress:
        progress.stage("verify", size)
        artifact = open_artifact(root, progress.advance)
        length = min(CHUNK, artifact.manifest.limits.max_seq_len)
        chosen = artifact.manifest.engines[0].target if target is None else target
        with (
            compiled_reference(
                gate.checkpoint, artifact, max_seq_len=length, progress=progress
            ) as reference,
            _opened(reference, reference.manifest.engines[0].target, threads) as theirs,
            _opened(artifact, chosen, threads) as ours,
        ):
            prompts = prompts_for(ours)  # refused before the text is read, which takes longest
            figures, text = _read(theirs, ours, gate, progress)
            progress.stage("answer questions", 0)
            answers = ask(theirs, ours, prompts)
        report = _report(artifact, reference, gate, (figures, text, answers), target=chosen)
        write_report(root, report)
    return report


def judge_built(root: Path, gate: Gate, *, display: Display) -> GateReport:
    """Judge an artifact that was just compiled, as `judge_artifact` does.

    Raises:
        UserError: the checkpoint or the text can't be used.
        WorkError: an engine failed, or the gate was interrupted; the artifact is there all the same.
    """
    try:
        return judge_artifact(root, gate, display=display)
    except KeyboardInterrupt as stop:
        raise WorkError(
            f"interrupted; {root} is there, but was not judged: run builder verify {root} --against {gate.checkpoint}"
        ) from stop


@contextlib.contextmanager
def _opened(artifact: Artifact, target: str, threads: int | None) -> Iterator[LoadedModel]:
    """Load an engine with a pool that is no larger than a gate needs."""
    manifest = artifact.manifest
    blocks = 1 + -(-POOL_TOKENS // manifest.kv.block_size)
    limits = replace(manifest.limits, num_blocks=min(manifest.limits.num_blocks, blocks))
    small = Artifact(artifact.root, replace(manifest, limits=limits))
    with contextlib.closing(load_model(small, target=target, threads=threads)) as model:
        yield model


def _read(
    theirs: LoadedModel, ours: LoadedModel, gate: Gate, progress: Stages
) -> tuple[Figures, TextRecord]:
    """Have both engines read the text. It comes first: nothing else is in their pools yet, which it writes over."""
    ids = encode_text(ours, gate.text)
    if ids != encode_text(theirs, gate.text):
        raise UserError(
            f"{gate.checkpoint} cuts the text into other tokens than {ours.artifact.root}: they are different models; "
            "name the checkpoint that the artifact was compiled from"
        )
    num_tokens = len(ids) if gate.num_tokens is None else gate.num_tokens
    if not 2 <= num_tokens <= len(ids):
        raise UserError(
            f"the gate reads {num_tokens} tokens of a text that has {len(ids)}; 2 are the fewest: give a longer "
            "text, or another number of tokens"
        )
    chunks = chunks_of(ours, ids[:num_tokens])
    total = sum(map(len, chunks))
    progress.stage("read text", total)
    figures = compare_engines(theirs.executor, ours.executor, chunks, progress.advance)
    name, sha256 = gate.text.name, gate.text.sha256
    return figures, TextRecord(name, sha256, num_tokens, total - len(chunks), len(chunks))


def _report(
    artifact: Artifact,
    reference: Artifact,
    gate: Gate,
    found: tuple[Figures, TextRecord, AnswerCounts],
    *,
    target: str,
) -> GateReport:
    figures, text, answers = found
    judgements = judgements_of(figures, answers, gate.thresholds)
    return GateReport(
        schema=SCHEMA,
        digest=artifact.manifest.digest,
        version=version("forerun"),
        target=target,
        precision=gate.precision,
        kv=gate.kv,
        reference=reference.manifest.source,
        reference_target=reference.manifest.engines[0].target,
        text=text,
        perplexity=figures.perplexity,
        reference_perplexity=figures.reference_perplexity,
        answers=answers,
        judgements=judgements,
        verdict=verdict_of(judgements),
    )
