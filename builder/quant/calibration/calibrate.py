"""Calibrates a checkpoint: builds its torch model, shows it the samples, exports what came out and opens that again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from builder.artifact.calibration_report import (
    SCHEMA,
    CalibrationReport,
    QuantizerRecord,
    SampleRecord,
    SearchRecord,
)
from builder.checkpoint.sources.hf import with_weights_of
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Checkpoint, Tensor
from builder.errors import BuildError
from builder.quant.calibration import nvfp4_backend
from builder.quant.calibration.configuration import configurations, kv_rules
from builder.quant.calibration.measuring import Measuring, Stages, count_tokens, run
from builder.quant.calibration.model import torch_model
from builder.quant.calibration.quiet import quiet
from builder.quant.calibration.samples import ROW, Batch, Samples, batches
from builder.quant.calibration.searching import Searched, search
from builder.quant.calibration.watching import (
    WEIGHT,
    Found,
    counting_clipped,
    num_beyond,
    quantizers,
    scale_zeros,
)

MODELOPT = "nvidia-modelopt"
SHARD = "1GB"
"""Of the exported checkpoint: writing takes as much memory as a shard has bytes."""
HELD_OUT_FROM = 4
"""Batches from which the last one is held out, to count clipping on text that scales were made without."""
SCALES = {
    "input_quantizer": ("input_scale",),
    "weight_quantizer": ("weight_scale_2", "weight_scale"),
    "k_bmm_quantizer": ("k_scale",),
    "v_bmm_quantizer": ("v_scale",),
}
"""Tensors of a layer that may hold the one scale of a quantizer, the first that is there."""


@dataclass(frozen=True, slots=True)
class Calibration:
    """What is asked of a calibration."""

    format: str
    """By its name in RECIPES."""
    samples: Samples
    kv: str | None = None
    """Precision of keys and values, if they get scales too."""
    group: int = 0
    """Inputs that share a scale, where the format has a choice."""
    bits: float | None = None
    """Budget for a weight on average, where formats are searched for."""


def calibrate(
    checkpoint: Checkpoint, asked: Calibration, folder: Path, progress: Stages
) -> tuple[Checkpoint, CalibrationReport]:
    """Give the checkpoint with weights and scales of the format that is asked for, which lie in `folder` from now on.

    Raises:
        CheckpointError: a weight can't be read.
        UnsupportedError: transformers has no class for it.
        BuildError: a library failed, or a layer saw no token.
    """
    with quiet():
        progress.stage("load model for calibration", 0)
        model = torch_model(checkpoint)
        runs = list(batches(asked.samples, min(ROW, model.config.max_position_embeddings)))
        held = runs[-1:] if len(runs) >= HELD_OUT_FROM else runs
        used = runs[:-1] if held is not runs else runs
        measuring = Measuring(used, progress)
        searched = _quantize(model, asked, measuring)
        found = quantizers(model)
        scale_zeros(found)
        progress.stage("count clipping", count_tokens(held))
        clipped = _clipped(model, found, held, progress)
        amaxes = [float(each.quantizer.amax.float().max()) for each in found]
        layers = [(each.layer, each.kind) for each in found]
        del found  # it holds weights, which the export puts others in the place of
        progress.stage("export calibrated checkpoint", 0)
        _export(model, folder)
    scales = _scales(folder, layers)
    made = with_weights_of(checkpoint, folder)
    rows = zip(layers, amaxes, scales, clipped, strict=True)
    report = CalibrationReport(
        schema=SCHEMA,
        version=version("forerun"),
        tool=f"{MODELOPT} {version(MODELOPT)}",
        format=asked.format,
        group=asked.group,
        kv=asked.kv,
        samples=_record(asked.samples, used, held),
        quantizers=tuple(
            QuantizerRecord(f"{layer}.{_name(kind)}", measuring.seen[layer], amax, scale, share)
            for (layer, kind), amax, scale, share in rows
        ),
        search=_choices(asked, searched, made),
    )
    return made, report


def _quantize(model: Any, asked: Calibration, measuring: Measuring) -> Searched | None:
    """Have modelopt measure and scale a model in place, and say what a search found if there was one.

    Raises:
        BuildError: a layer saw no token, which would leave it without a scale.
    """
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)
    import torch  # noqa: PLC0415

    nvfp4_backend.register()
    torch.manual_seed(0)
    configs, rules = configurations(asked.format, asked.group), kv_rules(asked.kv)
    searched = None
    if asked.bits is None:
        (config,) = configs
        mtq.quantize(model, {**config, "quant_cfg": [*config["quant_cfg"], *rules]}, measuring.all)
    else:
        searched = search(model, configs, asked.bits, measuring)
        if rules:
            mtq.set_quantizer_by_cfg(model, rules)
            mtq.calibrate(model, "max", measuring.all)
    unseen = sorted({each.layer for each in quantizers(model)} - set(measuring.seen))
    if unseen:
        raise BuildError(
            f"no token of the samples reached {', '.join(unseen[:5])}, so that nothing tells their scales; give more "
            "text with --calib"
        )
    return searched


def _clipped(
    model: Any, found: list[Found], runs: Sequence[Batch], progress: Stages
) -> list[float]:
    """Give the share of the numbers of each quantizer that it clips: of weights all, of rows those of some batches."""
    clipped: Counter[int] = Counter()
    total: Counter[int] = Counter()
    with counting_clipped(found, clipped, total):
        run(model, runs, progress)
    for place, each in enumerate(found):
        if each.kind == WEIGHT:
            clipped[place] = num_beyond(each.weight, each.quantizer.amax)
            total[place] = each.weight.numel()
    return [clipped[place] / max(total[place], 1) for place in range(len(found))]


def _export(model: Any, folder: Path) -> None:
    import torch  # noqa: PLC0415 (of the extra `quant`)
    from modelopt.torch.export import export_hf_checkpoint  # noqa: PLC0415

    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=folder, max_shard_size=SHARD)


def _scales(folder: Path, layers: Sequence[tuple[str, str]]) -> list[float | None]:
    """Read back the scales of quantizers that have one each."""
    tensors: dict[str, Tensor] = {}
    for path in sorted(folder.glob("*.safetensors")):
        tensors |= read_safetensors(path)
    found = []
    for layer, kind in layers:
        named = [f"{layer}.{part}" for part in SCALES[kind] if f"{layer}.{part}" in tensors]
        tensor = tensors[named[0]] if named else None
        is_one = tensor is not None and tensor.shape in ((), (1,))
        found.append(float(tensor.read().reshape(())) if tensor is not None and is_one else None)
    return found


def _name(kind: str) -> str:
    """Name a quantizer for people."""
    return {"input_quantizer": "input", "weight_quantizer": "weight"}.get(kind, kind[0])


def _choices(
    asked: Calibration, searched: Searched | None, made: Checkpoint
) -> SearchRecord | None:
    """Say what each layer became, as the checkpoint has it."""
    if searched is None or asked.bits is None:
        return None
    formats = {name: weight.format for name, weight in made.quantized.items()}
    chosen = {layer: formats.get(f"{layer}.weight", "float") for layer in searched.layers}
    return SearchRecord(asked.bits, searched.bits, chosen)


def _record(samples: Samples, used: Sequence[Batch], held: Sequence[Batch]) -> SampleRecord:
    return SampleRecord(
        name=samples.name,
        sha256=samples.sha256,
        num_samples=len(samples.rows),
        num_tokens=samples.num_tokens,
        num_text_tokens=samples.num_text_tokens,
        num_measured=count_tokens(used),
        num_checked=count_tokens(held),
        is_held_out=held is not used,
        warning=samples.warning,
    )
