"""Shows what a build will do and take, beside what the machine has, before any of it is done."""

import shutil
from pathlib import Path

import click

from builder.cli.display import Display, Rows
from builder.cli.lines import kv_line, limits_line, model_line
from builder.cli.sizes import format_bytes
from builder.pipeline import BuildPlan
from builder.targets import ALIASES
from builder.targets.machine import available_memory_bytes


def show_plan(plan: BuildPlan, destination: Path, display: Display) -> None:
    """Show what will be built and what that takes beside what the machine has."""
    memory = available_memory_bytes()
    disk = shutil.disk_usage(destination.parent).free
    peak, needed = plan.estimate.peak_bytes, plan.estimate.disk_bytes
    machine_rows = [
        (
            "peak memory",
            f"about {format_bytes(peak)} while building, of {format_bytes(memory)} available",
        ),
        ("disk", f"about {format_bytes(needed)} of {format_bytes(disk)} free"),
        ("output", str(destination)),
    ]
    display.facts("Plan", [*plan_rows(plan), *machine_rows])
    for note in plan.notes:
        display.note(f"note: {note}")
    if plan.calibration is not None and plan.calibration.samples.warning is not None:
        # With --quiet too: nothing later may say that the scales mean little.
        click.echo(f"warning: {plan.calibration.samples.warning}", err=True)
    if peak > memory:
        display.note(
            f"warning: the build may take {format_bytes(peak)} of memory, {format_bytes(memory)} are "
            "available; close other programs or use a larger machine"
        )


def plan_rows(plan: BuildPlan) -> Rows:
    """Give the names and values that describe a plan."""
    source = plan.checkpoint.source
    return [
        ("source", f"{source.name} ({source.kind}, {format_bytes(source.num_bytes)})"),
        ("model", model_line(plan.config)),
        ("precision", precision_line(plan)),
        *calibration_rows(plan),
        *(("target", target_line(*names)) for names in plan.targets),
        ("weights", format_bytes(plan.estimate.weights_bytes)),
        ("limits", limits_line(plan.limits)),
        ("KV cache", kv_line(plan.kv, plan.limits)),
    ]


def calibration_rows(plan: BuildPlan) -> Rows:
    """Say what the format is calibrated with, if it is."""
    if plan.calibration is None:
        return []
    samples = plan.calibration.samples
    told = f"{len(samples.rows)} samples, {samples.num_tokens} tokens of {samples.name}"
    return [("calibration", told)]


def precision_line(plan: BuildPlan) -> str:
    """Say what precision weights get, or have already."""
    options = plan.request.options
    if plan.imported is not None:
        return f"{plan.imported.label}, as in the checkpoint ({plan.checkpoint.method}); other weights as stored"
    asked = options.quant if plan.calibrated is None else plan.label
    return f"{options.dtype}, quantization {asked}"


def target_line(asked: str, realized: str) -> str:
    """Say which target a name stands for, and why."""
    if asked == realized:
        return asked
    _, reason = ALIASES[asked]
    return f"{asked} -> {realized}: {reason}"
