"""`builder compile`: show the plan, build the artifact, say where it is.

The plan and the progress go to stderr, one line about the artifact to stdout. What this version can't do is
refused before the checkpoint is touched.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from builder import pipeline
from builder.artifact.store import Artifact, check_free
from builder.checkpoint.groups import CHANNEL
from builder.cli.calibration.asking import (
    CalibrationFiles,
    calibrated_plan,
    calibration_options,
    read_asked,
)
from builder.cli.display import Display, display_for
from builder.cli.failures import printable
from builder.cli.gate.lines import report_rows
from builder.cli.gate.running import Gate, GateFiles, judge_built, make_gate
from builder.cli.interruption import stop_signals_interrupt
from builder.cli.plan import show_plan
from builder.cli.servable import refuse_unservable
from builder.cli.sizes import ByteSize, format_bytes, format_duration
from builder.errors import UnsupportedError, UserError, WorkError, unknown_name
from builder.gate.report import raise_missed
from builder.limits import LimitOptions
from builder.quant import FORMATS
from builder.quant.hardware import table_of_formats
from builder.quant.recipes import AUTO, RECIPES
from builder.targets.compiler import TargetOptions

KV_DTYPES = ("float32", "bfloat16", "int8", "fp8", "int8-static")
NAMES = tuple(name for name in dict.fromkeys([*FORMATS, *RECIPES]) if name != AUTO)
GROUPS = {"32": 32, "64": 64, "128": 128, "channel": CHANNEL}


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line of `builder compile` asks for."""

    model: str
    output: Path | None
    force: bool
    target: tuple[str, ...]
    dtype: str
    quant: str | None
    int8: bool
    fp8: bool
    nvfp4: bool
    int4: bool
    group: str | None
    auto_quant: float | None
    kv: str | None
    tp: int
    max_seq_len: int | None
    max_num_seqs: int | None
    max_num_tokens: int | None
    block_size: int | None
    kv_cache_bytes: int | None
    allow_fallback: bool
    calib: Path | None
    calib_samples: int | None
    gate: bool
    gate_text: Path | None
    gate_tokens: int | None
    gate_thresholds: Path | None
    quiet: bool

    @property
    def formats(self) -> tuple[str, ...]:
        """Quantization formats asked for, by flag or by name."""
        flags = {"int8": self.int8, "fp8": self.fp8, "nvfp4": self.nvfp4, "int4": self.int4}
        flags[AUTO] = self.auto_quant is not None
        named = () if self.quant is None else (self.quant,)
        return tuple(dict.fromkeys((*(name for name, asked in flags.items() if asked), *named)))


COUNT = click.IntRange(min=1)
LATER = "Not in this version."


@click.command(
    short_help="Compile a checkpoint into one artifact.",
    epilog=f"\b\nFormats and who runs them; GPU targets: {LATER.lower()}\n{table_of_formats()}",
)
@click.argument("model")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to write; its parent must exist.  [default: ./MODEL-FORMAT-tpN]",
)
@click.option("--force", is_flag=True, help="Replace the artifact at DIR.")
@click.option(
    "--target",
    multiple=True,
    default=("cpu",),
    metavar="NAME",
    help="What to compile for; may be given several times.  [default: cpu]",
)
@click.option(
    "--dtype",
    default="float32",
    show_default=True,
    metavar="NAME",
    help="Precision of weights, arithmetic and KV cache.",
)
@click.option("--int8", is_flag=True, help="Quantize weights to 8-bit integers.")
@click.option(
    "--fp8", is_flag=True, help="Calibrate weights and activations to FP8; emulated on CPUs."
)
@click.option("--nvfp4", is_flag=True, help="Calibrate both to NVFP4; emulated on CPUs.")
@click.option("--int4", is_flag=True, help="Quantize weights to 4-bit integers.")
@click.option("--quant", metavar="NAME", help=f"The same by name: none, {', '.join(NAMES)}.")
@click.option(
    "--group",
    type=click.Choice(tuple(GROUPS)),
    help="Weights that share a scale, of int8, int4 and uint4: 32, 64, 128, or all of an output channel.  "
    "[default: 64; 32 for 4 bits]",
)
@click.option(
    "--kv",
    metavar="NAME",
    help="Precision of the KV cache: float32, bfloat16, int8; fp8 or int8-static with the checkpoint's scales, fp8 also with a calibrated format.  "
    "[default: as in the checkpoint, or what goes with the weights]",
)
@click.option(
    "--tp",
    type=COUNT,
    default=1,
    metavar="N",
    help=f"Ranks that share the model. More than 1: {LATER.lower()}",
)
@click.option(
    "--max-seq-len", type=COUNT, metavar="N", help="Tokens of prompt and answer together."
)
@click.option("--max-num-seqs", type=COUNT, metavar="N", help="Sequences in one step.")
@click.option("--max-num-tokens", type=COUNT, metavar="N", help="Tokens in one step.")
@click.option("--block-size", type=COUNT, metavar="N", help="Tokens in one KV block.")
@click.option(
    "--kv-cache-bytes", type=ByteSize(), help="Memory of the KV pools, such as 512MiB, 2GB or 1g."
)
@click.option(
    "--allow-fallback", is_flag=True, help="Take layers of another precision than is asked for."
)
@calibration_options
@click.option("--gate", is_flag=True, help="Judge the artifact by MODEL in float32 afterwards.")
@click.option(
    "--gate-text", type=click.Path(path_type=Path), metavar="FILE", help="Text that the gate reads."
)
@click.option("--gate-tokens", type=click.IntRange(2), metavar="N", help="Tokens of it.")
@click.option(
    "--gate-thresholds", type=click.Path(path_type=Path), metavar="FILE", help="Its thresholds."
)
@click.option("-q", "--quiet", is_flag=True, help="Show neither plan nor progress.")
def command(**options: Any) -> None:
    """Compile MODEL ahead of time into one verified artifact.

    MODEL is a Hugging Face folder, a GGUF file, or ORG/NAME@REVISION on the Hugging Face hub. Limits that
    are not given are derived from the model; the plan, which is shown first, says what they are.
    With --gate, exit code 1 may also mean that the artifact is there and missed its quality gate.
    """
    compile_model(Options(**options))


def compile_model(options: Options) -> None:
    """Plan, show, build and report.

    Raises:
        ForerunError: the request is refused, the build failed or was interrupted, or the gate was missed.
    """
    started = time.monotonic()
    request = request_from(options)
    if options.output is not None:
        check_free(options.output, replace_existing=options.force)
    text = read_asked(request.options.quant, CalibrationFiles(options.calib, options.calib_samples))
    plan = pipeline.plan(request, shows_bars=not options.quiet and sys.stderr.isatty())
    refuse_unservable(plan.checkpoint.tokenizer)
    plan = calibrated_plan(plan, text)
    destination = options.output or Path(plan.default_name)
    check_free(destination, replace_existing=options.force)
    gate = gate_from(options, plan)
    display = display_for(quiet=options.quiet)
    show_plan(plan, destination, display)
    artifact = build(plan, destination, display=display, replace_existing=options.force)
    took = format_duration(time.monotonic() - started)
    click.echo(printable(f"{destination}: {format_bytes(size_of(artifact))} in {took}"))
    if gate is not None:
        report = judge_built(destination, gate, display=display)
        display.facts("Quality gate", report_rows(report))
        raise_missed(report)


def gate_from(options: Options, plan: pipeline.BuildPlan) -> Gate | None:
    """Give the gate that is asked for; None without one.

    Raises:
        UserError: its options contradict others, or a file of it can't be used.
    """
    files = GateFiles(options.gate_text, options.gate_tokens, options.gate_thresholds)
    if not options.gate and files != GateFiles():
        raise UserError("--gate-text, --gate-tokens and --gate-thresholds go with --gate; add it")
    if not options.gate:
        return None
    if len(plan.targets) > 1:
        raise UserError("--gate judges one engine; compile for each --target by itself")
    return make_gate(options.model, plan.label, plan.kv, files=files)


def request_from(options: Options) -> pipeline.CompileRequest:
    """Give the pipeline's request.

    Raises:
        UserError: an option asks for what this version can't do, or two options contradict each other.
    """
    refuse_later(options)
    return pipeline.CompileRequest(
        model=options.model,
        targets=options.target,
        allow_fallback=options.allow_fallback,
        is_gated=options.gate,
        options=TargetOptions(
            dtype=options.dtype,
            quant=quant_from(options.formats, options.auto_quant),
            bits=options.auto_quant,
            group=None if options.group is None else GROUPS[options.group],
            kv=options.kv,
            tp=options.tp,
        ),
        limits=LimitOptions(
            max_seq_len=options.max_seq_len,
            max_num_seqs=options.max_num_seqs,
            max_num_tokens=options.max_num_tokens,
            block_size=options.block_size,
            kv_cache_bytes=options.kv_cache_bytes,
        ),
    )


def refuse_later(options: Options) -> None:
    """Refuse by name, all at once, what only later versions can do.

    Raises:
        UnsupportedError: an option asks for such a thing.
    """
    refused = [] if options.kv in (None, *KV_DTYPES) else [f"--kv {options.kv}"]
    refused += [] if options.tp == 1 else [f"--tp {options.tp}"]
    if refused:
        raise UnsupportedError(
            f"{' and '.join(refused)}: not in this version, which supports --kv {', '.join(KV_DTYPES)}, and --tp 1"
        )


def quant_from(formats: tuple[str, ...], bits: float | None) -> str:
    """Give the one format asked for; `none` without any.

    Raises:
        UserError: several formats, or an unknown one.
    """
    if len(formats) > 1:
        raise UserError(
            f"one format at a time; given {' and '.join(formats)}, leave out all but one"
        )
    name = formats[0] if formats else "none"
    supported = ("none", *NAMES, *([] if bits is None else [AUTO]))
    if name not in supported:
        raise UserError(unknown_name("format", name, supported))
    return name


def build(
    plan: pipeline.BuildPlan, destination: Path, *, display: Display, replace_existing: bool
) -> Artifact:
    """Build the planned artifact while showing progress.

    Raises:
        WorkError: the build failed or was interrupted; nothing is left behind then.
    """
    try:
        with stop_signals_interrupt(), display.progress() as progress:
            return pipeline.build(
                plan, destination, progress=progress, replace_existing=replace_existing
            )
    except KeyboardInterrupt as stop:
        raise WorkError("interrupted; nothing was left behind") from stop


def size_of(artifact: Artifact) -> int:
    """Bytes of all files that the manifest names."""
    return sum(record.size_bytes for record in artifact.manifest.files.values())
