"""The compile story: read, plan, build, quantize, lower, compile, verify, package.

`plan` opens the checkpoint and refuses everything that can be refused before a weight is read; `build` does the
work in a hidden folder and renames it when all of it is complete.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Protocol

from builder import archs, limits, targets
from builder.artifact import store
from builder.artifact.calibration_report import write_calibration
from builder.artifact.config import KVGeometry, Limits, ModelConfig
from builder.artifact.manifest import SCHEMA, EngineRecord, Manifest
from builder.artifact.staging import staged
from builder.artifact.store import Artifact
from builder.checkpoint.open import open_checkpoint
from builder.checkpoint.provenance import check_unchanged, file_states
from builder.checkpoint.tensors import Checkpoint
from builder.checkpoint.weights import WeightReader, has_tied_head
from builder.errors import UserError
from builder.limits import Estimate, LimitOptions
from builder.package import record_source, write_tokenizer
from builder.quant import FORMATS, is_emulated
from builder.quant.apply import quantize
from builder.quant.calibration.calibrate import Calibration, calibrate
from builder.quant.calibration.model import stored_dtype
from builder.quant.hardware import check_hardware
from builder.quant.imported import (
    block_notes,
    exact_notes,
    imported_precision,
    plan_imported,
    precision_of_ends,
)
from builder.quant.plan import Precision, linear_weights, plan_quantization
from builder.quant.realized import fallbacks, refuse_fallbacks
from builder.quant.recipes import label_for, number_formats
from builder.quant.rotate import rotate
from builder.targets import imports
from builder.targets import kv as kv_forms
from builder.targets.compiler import TargetOptions, load_compiler
from builder.trial import try_engine

CALIBRATED = "calibrated"
"""Folder of a calibrated checkpoint, which is there while an artifact is made."""


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What a user asks to be compiled."""

    model: str
    targets: tuple[str, ...] = ("cpu",)
    options: TargetOptions = field(default_factory=TargetOptions)
    limits: LimitOptions = field(default_factory=LimitOptions)
    allow_fallback: bool = False
    """Whether layers may get another precision than is asked for; the manifest names them."""
    is_gated: bool = False
    """Whether the artifact waits for its quality gate."""


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """What a build will do, known before a weight is read."""

    request: CompileRequest
    checkpoint: Checkpoint
    config: ModelConfig
    limits: Limits
    kv: KVGeometry
    targets: tuple[tuple[str, str], ...]
    """(asked, realized) target names."""
    estimate: Estimate
    imported: Precision | None
    """What most weights are quantized to in the checkpoint itself; then options don't say it."""
    calibrated: Precision | None
    """What calibration quantizes weights to, where options ask for that; the largest that a search may choose."""
    notes: tuple[str, ...]
    """Warnings, one line each."""
    calibration: Calibration | None = None
    """How scales are made that neither the checkpoint has nor the weights alone tell."""

    @property
    def precision(self) -> Precision:
        """Precision of most weights: the checkpoint's own where it is quantized, else what options ask for."""
        return self.imported or self.calibrated or self.request.options.precision

    @property
    def label(self) -> str:
        """Name of the precision for people and files, such as `int8-g32`: by its recipe where it is calibrated."""
        options = self.request.options
        if self.calibrated is None:
            return self.precision.label
        return label_for(options.quant, self.calibrated.group, options.bits)

    @property
    def default_name(self) -> str:
        """Name of the artifact's folder when the user gives none: `<model>-<format>-tp<N>`."""
        stem = Path(self.checkpoint.source.name).name.removesuffix(".gguf")
        return f"{stem}-{self.label}-tp{self.request.options.tp}"


class Progress(Protocol):
    """Hears how far a build is."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of `total` bytes; 0 if nobody knows."""
        ...

    def advance(self, amount: int) -> None:
        """Report bytes done in the current stage."""
        ...


def plan(request: CompileRequest, *, shows_bars: bool = False) -> BuildPlan:
    """Open the checkpoint and decide everything about the build; a download may show bars on stderr.

    Raises:
        UserError: the checkpoint can't be read, or something asked for is not supported.
    """
    check_hardware(request.targets, request.options.quant, request.options.kv)
    for asked in request.targets:
        targets.resolve(asked)
    return plan_checkpoint(open_checkpoint(request.model, shows_bars=shows_bars), request)


def plan_checkpoint(checkpoint: Checkpoint, request: CompileRequest) -> BuildPlan:
    """Decide everything about the build of a checkpoint that is open.

    Raises:
        UserError: something asked for is not supported.
    """
    chosen = tuple((asked, targets.resolve(asked)) for asked in dict.fromkeys(request.targets))
    config = replace(archs.read_config(checkpoint.config), tied_head=has_tied_head(checkpoint))
    checkpoint.tokenizer.check_fits(config.vocab_size)
    names = tuple(dict.fromkeys(name for _, name in chosen))
    imported = imports.check(checkpoint, request.options)
    calibrated = imports.calibrated(config, request.options) if imported is None else None
    asked = kv_forms.with_kv(request.options, checkpoint.kv, calibrates=calibrated is not None)
    options = {name: imports.options_for(name, asked, imported or calibrated) for name in names}
    for name in names:
        load_compiler(name).check(config, options[name])
    block_size = limits.check_block_size(request.limits, names)
    kv = kv_forms.geometry(config, block_size, options, scales=checkpoint.kv)
    found = limits.derive(request.limits, config, kv)
    return BuildPlan(
        request=request,
        checkpoint=checkpoint,
        config=config,
        limits=found,
        kv=kv,
        targets=chosen,
        estimate=limits.estimate(
            config,
            found,
            options[names[0]].precision,
            target=names[0],
            ends=_ends(checkpoint, imported, calibrated),
        ),
        imported=imported,
        calibrated=calibrated,
        notes=(
            *_emulations(
                number_formats((request.options if calibrated else options[names[0]]).quant), names
            ),
            *_notes(checkpoint),
            *exact_notes(checkpoint, names),
            *kv_forms.notes(kv, checkpoint.kv),
            *block_notes(checkpoint, options[names[0]].precision),
        ),
    )


def _ends(
    checkpoint: Checkpoint, imported: Precision | None, calibrated: Precision | None
) -> Precision | None:
    """Give the precision of head and embedding table, which calibration leaves alone; None where options say it."""
    if imported is not None:
        return precision_of_ends(checkpoint)
    return None if calibrated is None else Precision(stored_dtype(checkpoint))


def _emulations(formats: tuple[str, ...], names: tuple[str, ...]) -> Iterator[str]:
    """Say which targets compute formats in float32."""
    for target in names:
        found = [name for name in formats if is_emulated(name, target)]
        if found:
            yield (
                f"target {target} emulates {' and '.join(found)}: its exact numbers are multiplied in float32, to measure its accuracy and "
                "not for speed"
            )


def _notes(checkpoint: Checkpoint) -> tuple[str, ...]:
    notes = []
    if checkpoint.tokenizer.chat_template is None:
        notes.append("the model has no chat template: completions work, chat will be refused")
    if "auto_map" in checkpoint.config:
        notes.append(
            "config.json names Python code of its own (auto_map), which is never run: the graph is that of "
            f"model_type {checkpoint.config.get('model_type')}"
        )
    if not checkpoint.tokenizer.end_tokens:
        notes.append("the model names no end-of-sequence token: answers end at their token limit")
    return tuple(notes)


def build(
    plan: BuildPlan, destination: Path, *, progress: Progress, replace_existing: bool = False
) -> Artifact:
    """Build the artifact at `destination`, or nothing.

    Raises:
        UserError: the destination is taken, or the checkpoint turns out to be broken.
        BuildError: the disk is full, or the engine that was built does not run.
    """
    destination = destination.resolve()
    store.check_free(destination, replace_existing=replace_existing)
    free = shutil.disk_usage(destination.parent).free
    if free < plan.estimate.disk_bytes:
        raise UserError(
            f"{destination.parent} has {free >> 20} MiB free, the artifact needs "
            f"{plan.estimate.disk_bytes >> 20}; free some space or choose another -o"
        )
    before = file_states(plan.checkpoint.source)
    with staged(destination) as folder:
        progress.stage("hash source", plan.checkpoint.source.num_bytes)
        source = record_source(plan.checkpoint, progress.advance)
        names = dict.fromkeys(name for _, name in plan.targets)
        ready = _calibrated(plan, folder, progress)
        engines = tuple(_compile(ready, name, folder, progress) for name in names)
        shutil.rmtree(folder / CALIBRATED, ignore_errors=True)
        manifest = Manifest(
            schema=SCHEMA,
            version=version("forerun"),
            source=source,
            model=plan.config,
            limits=plan.limits,
            kv=ready.kv,
            engines=engines,
            tokenizer=write_tokenizer(plan.checkpoint.tokenizer, folder / "tokenizer"),
            tools={k: v for name in names for k, v in load_compiler(name).tools().items()},
            files={},
            is_gated=plan.request.is_gated,
        )
        progress.stage("verify", 0)
        for engine in engines:
            try_engine(Artifact(folder, manifest), engine.target)
        check_unchanged(plan.checkpoint.source, before)
        return store.publish(folder, destination, manifest, replace_existing=replace_existing)


def _calibrated(plan: BuildPlan, folder: Path, progress: Progress) -> BuildPlan:
    """Give the plan of the checkpoint that calibration makes, in a folder of its own, where one is needed; write its report.

    Raises:
        BuildError: it failed.
    """
    if plan.calibrated is None:
        return plan
    assert plan.calibration is not None, "whoever plans a calibrated format gives the samples"
    checkpoint, report = calibrate(plan.checkpoint, plan.calibration, folder / CALIBRATED, progress)
    write_calibration(folder, report)
    kv = kv_forms.with_calibrated(plan.kv, checkpoint.kv)
    return replace(plan, checkpoint=checkpoint, imported=imported_precision(checkpoint), kv=kv)


def _compile(plan: BuildPlan, target: str, folder: Path, progress: Progress) -> EngineRecord:
    """Take one target from the checkpoint's tensors to an engine file.

    Raises:
        UnsupportedError: a layer has no kernel, or got another precision than is asked for.
    """
    compiler, options = load_compiler(target), plan.request.options
    progress.stage(f"build graph for {target}", 0)
    graph = archs.build_graph(plan.config, WeightReader(plan.checkpoint), plan.limits.max_seq_len)
    if plan.imported is not None:
        precisions = plan_imported(graph, plan.checkpoint, compiler.groups)
        if plan.calibrated is not None:
            precisions = replace(precisions, requested=plan.label)
    else:
        if (rules := FORMATS.get(options.precision.name)) and rules.IS_ROTATED:
            rotate(graph)
        precisions = plan_quantization(graph, options.precision)
    linear = [str(weight.name) for weight in linear_weights(graph.model)]
    lowered = compiler.lower(quantize(graph, precisions), plan.kv)
    fallen = fallbacks(linear, precisions.layers, lowered.realized)
    if not plan.request.allow_fallback:
        refuse_fallbacks(fallen, lowered.realized, target)
    advance: Callable[[int], None] = progress.advance
    progress.stage(f"write {target}", plan.estimate.weights_bytes)
    return replace(compiler.compile(lowered, folder, advance), fallbacks=fallen)
