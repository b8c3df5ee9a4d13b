"""`builder verify`: prove that an artifact is whole, that its answers do not depend on how it is served, how good it is.

Files are always checked. With `--determinism`, the same requests are served in many ways on the artifact's
own engine, and token ids and the bits of logprobs are compared. With `--against`, its engine is held against
the checkpoint in float32.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from builder.artifact import gate_report
from builder.artifact.store import read_manifest
from builder.cli.determinism.cases import TEXT, make_cases
from builder.cli.determinism.permutations import PERMUTATIONS, Outcome, Proof
from builder.cli.display import Display, Rows, display_for, display_on
from builder.cli.gate.lines import report_rows
from builder.cli.inspect import verify_files
from builder.cli.runtimes import refuse_two_runtimes
from builder.cli.session import open_session
from builder.errors import EngineError, UserError
from triton_backend.loading import LoadedModel

NUM_PROMPTS = 6
MAX_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder verify` asks for."""

    artifact: Path
    determinism: bool
    against: str | None
    tokens: int | None
    text: Path | None
    thresholds: Path | None
    prompts: int | None
    max_tokens: int | None
    target: str | None
    threads: int | None
    as_json: bool
    quiet: bool


@click.command(short_help="Prove that an artifact is whole and its answers repeatable.")
@click.argument("artifact", type=click.Path(path_type=Path), metavar="DIR")
@click.option(
    "--determinism",
    is_flag=True,
    help="Serve the same prompts in many ways and compare token ids and bits of logprobs.",
)
@click.option(
    "--against",
    metavar="CHECKPOINT",
    help="Judge the engine by this model in float32: the quality gate.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=2),
    metavar="N",
    help="Tokens of the text that are read.  [default: all]",
)
@click.option(
    "--text",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Text to read.  [default: Forerun's own]",
)
@click.option(
    "--thresholds",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON or TOML of thresholds that differ from the format's.",
)
@click.option(
    "--prompts",
    type=click.IntRange(2, 256),
    metavar="N",
    help="Prompts to serve, half of them greedy and half drawn.  [default: 6]",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(min=1),
    metavar="N",
    help="Tokens of an answer.  [default: 16]",
)
@click.option("--target", metavar="NAME", help="Engine to run.  [default: the artifact's first]")
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Threads of the engine.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def command(**options: Any) -> None:
    """Check size and sha256 of every file of the artifact in DIR.

    With --determinism, also serve prompts alone, together, in another order, joining in flight, in chunks,
    after a cache hit, preempted, with several choices, speculated and streamed. Exit code 1 says that some
    answer differs; the table says which. Exit code 2 says that none does, but some way did not come about, which
    proves nothing: raise --prompts or --max-tokens.
    """
    verify(Options(**options))


def verify(options: Options) -> None:
    """Check what is asked, and print what was found.

    Raises:
        ArtifactError: a file is missing, altered, or not named by the manifest.
        UserError: options contradict each other, or the proof can't be made.
        EngineError: an answer differs.
        GateError: a threshold of the quality gate was missed.
    """
    refuse_misplaced(options)
    if options.against is not None:
        verify_quality(options, options.against)
    elif options.determinism:
        verify_determinism(options)
    else:
        verify_files_alone(options)


OWNERS = {
    "prompts": ("--determinism",),
    "max_tokens": ("--determinism",),
    "tokens": ("--against",),
    "text": ("--against",),
    "thresholds": ("--against",),
    "target": ("--determinism", "--against"),
    "threads": ("--determinism", "--against"),
}
"""Options and the proofs that they belong to."""


def refuse_misplaced(options: Options) -> None:
    """Refuse two proofs at once, and options that would have no effect.

    Raises:
        UserError: names the option, and what it goes with.
    """
    asked = {"--determinism": options.determinism, "--against": options.against is not None}
    if all(asked.values()):
        raise UserError("--determinism and --against are two proofs; run one after the other")
    for name, owners in OWNERS.items():
        if getattr(options, name) is not None and not any(asked[owner] for owner in owners):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"{flag} has no effect here; it goes with {' or '.join(owners)}")


def verify_files_alone(options: Options) -> None:
    """Check the files.

    Raises:
        ArtifactError: a file is missing, altered, or not named by the manifest.
    """
    manifest = read_manifest(options.artifact)
    verify_files(options.artifact, manifest)
    if options.as_json:
        click.echo(json.dumps({"artifact": str(options.artifact), "files": len(manifest.files)}))


def verify_quality(options: Options, checkpoint: str) -> None:
    """Judge the artifact by its checkpoint, print the figures and leave them in the artifact.

    Raises:
        UserError: the artifact, the checkpoint or a file can't be used.
        GateError: a threshold was missed.
    """
    # Only here: compiling the reference needs onnx, which takes a second to import.
    from builder.cli.gate.running import GateFiles, judge_artifact, make_gate  # noqa: PLC0415
    from builder.gate.report import raise_missed  # noqa: PLC0415

    refuse_two_runtimes()
    manifest = read_manifest(options.artifact)
    files = GateFiles(options.text, options.tokens, options.thresholds)
    gate = make_gate(checkpoint, manifest.engines[0].requested, manifest.kv, files=files)
    found = judge_artifact(
        options.artifact,
        gate,
        display=display_for(quiet=options.quiet),
        target=options.target,
        threads=options.threads,
    )
    if options.as_json:
        click.echo(gate_report.encode(found), nl=False)
    else:
        display_on(sys.stdout).facts(str(options.artifact), report_rows(found))
    raise_missed(found)


def verify_determinism(options: Options) -> None:
    """Serve the same requests in many ways, and print what was found.

    Raises:
        UserError: the artifact's limits leave no room for the proof, or some way did not come about.
        EngineError: an answer differs.
    """
    refuse_two_runtimes()
    display = display_for(quiet=options.quiet)
    with open_session(
        options.artifact, display=display, target=options.target, threads=options.threads
    ) as model:
        outcomes = prove(model, options, display)
    if options.as_json:
        click.echo(json.dumps(report(options, outcomes)))
    else:
        display_on(sys.stdout).facts(str(options.artifact), rows(outcomes))
    raise_unproved(outcomes)


def prove(model: LoadedModel, options: Options, display: Display) -> list[Outcome]:
    """Serve the prompts in every way.

    Raises:
        UserError: the artifact's limits leave no room for them.
    """
    cases = make_cases(
        model.encode_text(TEXT),
        model.executor.limits,
        count=options.prompts or NUM_PROMPTS,
        max_tokens=options.max_tokens or MAX_TOKENS,
        block_size=model.executor.kv.block_size,
    )
    ends = model.artifact.manifest.tokenizer.end_token_ids
    proof = Proof(model.executor, model.tokenizer, ends, cases)
    outcomes = []
    with display.progress() as progress:
        progress.stage("alone", 0)
        proof.serve_alone()
        for permutation in PERMUTATIONS:
            progress.stage(permutation.__name__.replace("_", " "), 0)
            outcomes.append(permutation(proof))
    return outcomes


def rows(outcomes: list[Outcome]) -> Rows:
    """Give the lines of the table."""
    return [(outcome.name, line(outcome)) for outcome in outcomes]


def line(outcome: Outcome) -> str:
    """Say how one way went."""
    size = f"{outcome.num_answers} answers, {outcome.num_tokens} tokens, {outcome.evidence}"
    if outcome.differences:
        return f"DIFFERS: {'; '.join(outcome.differences)} ({size})"
    return f"equal: {size}" if outcome.is_exercised else f"not exercised: {size}"


def report(options: Options, outcomes: list[Outcome]) -> dict[str, Any]:
    """Give the table for programs: `proved` says that every way came about, and every answer was equal."""
    is_equal = not any(outcome.differences for outcome in outcomes)
    return {
        "artifact": str(options.artifact),
        "equal": is_equal,
        "proved": is_equal and all(outcome.is_exercised for outcome in outcomes),
        "ways": [asdict(outcome) for outcome in outcomes],
    }


def raise_unproved(outcomes: list[Outcome]) -> None:
    """Fail when any answer differs, or any way did not come about.

    Raises:
        EngineError: names the ways that differ.
        UserError: none does; names the ways that did not come about.
    """
    different = [outcome.name for outcome in outcomes if outcome.differences]
    if different:
        raise EngineError(
            f"answers depend on how they are served: {', '.join(different)}; the table says where"
        )
    missing = [outcome.name for outcome in outcomes if not outcome.is_exercised]
    if missing:
        raise UserError(
            f"no answer differs, but not all is proved, as this did not come about: {', '.join(missing)};"
            " raise --prompts or --max-tokens, or compile with larger limits"
        )
