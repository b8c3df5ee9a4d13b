"""`builder inspect`: say what an artifact is and holds, for people or for programs."""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import click

from builder.artifact import manifest as manifests
from builder.artifact.manifest import EngineRecord, Manifest, TokenizerRecord
from builder.artifact.store import open_artifact, read_manifest
from builder.cli.calibration.lines import calibration_rows
from builder.cli.display import Rows, display_on
from builder.cli.gate.lines import gate_line
from builder.cli.lines import kv_line, limits_line, model_line
from builder.cli.sizes import format_bytes


@click.command(short_help="Show what an artifact is and holds.")
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--json", "as_json", is_flag=True, help="Print the manifest as it is stored.")
@click.option("--verify", is_flag=True, help="Check size and sha256 of every file first.")
def command(artifact: Path, as_json: bool, verify: bool) -> None:
    """Show the model, limits, engines, files and tokenizer of the artifact in DIR."""
    manifest = read_manifest(artifact)
    if verify:
        verify_files(artifact, manifest)
    if as_json:
        click.echo((artifact / manifests.FILE_NAME).read_bytes(), nl=False)
    else:
        rows = [
            *manifest_rows(manifest),
            *calibration_rows(artifact),
            ("quality gate", gate_line(artifact, manifest)),
        ]
        display_on(sys.stdout).facts(str(artifact), rows)


def verify_files(artifact: Path, manifest: Manifest) -> None:
    """Check every file and say so on stderr.

    Raises:
        ArtifactError: a file is missing, altered, or not named by the manifest.
    """
    size = sum(record.size_bytes for record in manifest.files.values())
    display = display_on(sys.stderr)
    with display.progress() as progress:
        progress.stage("verify", size)
        open_artifact(artifact, progress.advance)
    display.note(f"verified: {len(manifest.files)} files, {format_bytes(size)}")


def manifest_rows(manifest: Manifest) -> Rows:
    """Give the names and values that describe an artifact."""
    files, source = manifest.files.values(), manifest.source
    revision = f", revision {source.revision}" if source.revision else ""
    kinds = ", ".join(f"{count} x {kind}" for kind, count in _counted(source.stored.values()))
    held = f", weights in {kinds}" if kinds else ""
    tools = ", ".join(f"{name} {version}" for name, version in sorted(manifest.tools.items()))
    return [
        ("model", model_line(manifest.model)),
        ("source", f"{source.name} ({source.kind}{revision}), {len(source.files)} files{held}"),
        ("limits", limits_line(manifest.limits)),
        ("KV cache", kv_line(manifest.kv, manifest.limits)),
        *(("engine", engine_line(engine)) for engine in manifest.engines),
        ("arithmetic", "; ".join(sorted({engine.compute for engine in manifest.engines}))),
        *tokenizer_rows(manifest.tokenizer),
        ("files", f"{len(files)}, {format_bytes(sum(file.size_bytes for file in files))}"),
        ("made by", f"forerun {manifest.version}; {tools}"),
    ]


def engine_line(engine: EngineRecord) -> str:
    """Describe an engine: what precision was asked for, and what its layers really have."""
    realized = ", ".join(
        f"{count} x {dtype}{' (emulated)' if dtype in engine.emulated else ''}"
        for dtype, count in _counted(engine.realized.values())
    )
    if engine.fallbacks:
        kinds = ", ".join(sorted(set(engine.fallbacks.values())))
        realized += f" ({len(engine.fallbacks)} of them fell back from {kinds})"
    place = engine.path if engine.weights is None else f"{engine.path} + {engine.weights}"
    return f"{engine.target} rank {engine.rank}: asked {engine.requested}, is {realized}; {place}"


def tokenizer_rows(tokenizer: TokenizerRecord) -> Rows:
    """Describe the tokenizer, what it puts around a completion prompt, and who names its end tokens."""
    ends = [f"{end.id} {end.text} ({', '.join(end.origins)})" for end in tokenizer.end_tokens]
    return [
        ("tokenizer", f"{tokenizer.vocab_size} tokens"),
        (
            "added ids",
            f"{_ids(tokenizer.prefix_ids)} before a completion, {_ids(tokenizer.suffix_ids)} after",
        ),
        *(("end token", end) for end in ends or ["none"]),
        ("chat template", "present" if tokenizer.has_chat_template else "absent"),
    ]


def _counted(kinds: Iterable[str]) -> list[tuple[str, int]]:
    return sorted(Counter(kinds).items())


def _ids(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids)) or "none"
