"""What `builder compile` is told about calibration, and the plan that follows from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click

from builder.cli.calibration.encoding import encode_samples
from builder.cli.calibration.texts import CalibrationText, read_calibration_text
from builder.errors import UserError
from builder.pipeline import BuildPlan
from builder.quant.calibration.calibrate import Calibration
from builder.quant.calibration.memory import check_memory, need
from builder.quant.calibration.requirements import check_installed
from builder.quant.calibration.samples import check_samples
from builder.quant.recipes import FLOAT_BITS, LEAST_BITS, RECIPES
from builder.targets import kv as kv_forms
from builder.targets.machine import available_memory_bytes

Command = Callable[..., Any]


def _finite(_: click.Context, __: click.Parameter, bits: float | None) -> float | None:
    """Refuse what is no number: every comparison with it is false, that with a bound too."""
    if bits is not None and not math.isfinite(bits):
        raise click.BadParameter("it is no number of bits")
    return bits


OPTIONS = (
    click.option(
        "--auto-quant",
        type=click.FloatRange(LEAST_BITS, FLOAT_BITS, max_open=True),
        callback=_finite,
        metavar="BITS",
        help="Choose FP8, NVFP4 or neither for each layer, for that many bits a weight on average.",
    ),
    click.option(
        "--calib",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Text or JSONL to calibrate with.  [default: Forerun's own prompts]",
    ),
    click.option(
        "--calib-samples",
        type=click.IntRange(min=1),
        metavar="N",
        help="Samples of it, from its beginning.  [default: 512]",
    ),
)


def calibration_options(command: Command) -> Command:
    """Give a command the options of calibration."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


@dataclass(frozen=True, slots=True)
class CalibrationFiles:
    """What of a calibration the user may choose; None leaves what Forerun ships."""

    text: Path | None = None
    num_samples: int | None = None


def read_asked(quant: str, files: CalibrationFiles) -> CalibrationText | None:
    """Read what a format is to be calibrated with, before a checkpoint is touched; None where nothing is calibrated.

    Raises:
        UserError: the options have no effect, or the file can't be used.
    """
    if quant not in RECIPES:
        if files != CalibrationFiles():
            raise UserError(
                "--calib and --calib-samples go with a format that is calibrated, and have no effect here; those are "
                f"{', '.join(RECIPES)}"
            )
        return None
    return read_calibration_text(files.text, files.num_samples)


def calibrated_plan(plan: BuildPlan, text: CalibrationText | None) -> BuildPlan:
    """Add to a plan what its format is calibrated with, and what that takes.

    Raises:
        UserError: a library is missing, the samples say nothing, or the machine has too little memory.
    """
    if text is None:
        return plan
    if plan.calibrated is None:  # the checkpoint has scales of its own
        if not text.is_own:
            raise UserError(
                "--calib has no effect on a checkpoint that is quantized already; leave it out, or compile the checkpoint of "
                "the same model in float16 or bfloat16"
            )
        return plan
    options = plan.request.options
    check_installed(options.quant)
    samples = encode_samples(text, plan.checkpoint.tokenizer)
    check_samples(samples, plan.config.vocab_size)
    needed = need(plan.checkpoint, options.quant)
    check_memory(needed, options.quant, available_memory_bytes())
    estimate = replace(
        plan.estimate,
        disk_bytes=plan.estimate.disk_bytes + needed.exported_bytes,
        peak_bytes=max(plan.estimate.peak_bytes, needed.total_bytes),
    )
    return replace(
        plan,
        calibration=Calibration(
            options.quant,
            samples,
            kv_forms.calibrated(plan.kv),
            plan.calibrated.group,
            options.bits,
        ),
        estimate=estimate,
    )
