"""Calibrates a checkpoint: builds its torch model, shows it the samples, exports what came out and opens that again."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from builder.artifact.calibration_report import (
    SCHEMA,
    CalibrationReport,
    QuantizerRecord,
    SampleRecord,
)
from builder.checkpoint.sources.hf import with_weights_of
from builder.checkpoint.sources.safetensors_file import read_safetensors
from builder.checkpoint.tensors import Checkpoint, Tensor
from builder.errors import BuildError
from builder.quant.calibration import nvfp4_backend
from builder.quant.calibration.configuration import configuration
from builder.quant.calibration.model import torch_model
from builder.quant.calibration.quiet import quiet
from builder.quant.calibration.samples import ROW, Batch, Samples, batches
from builder.quant.calibration.watching import (
    WEIGHT,
    Found,
    counting_clipped,
    counting_tokens,
    num_beyond,
    quantizers,
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


class Stages(Protocol):
    """Hears how far it is: a named stage of `total` tokens, then tokens done."""

    def stage(self, name: str, total: int) -> None: ...

    def advance(self, amount: int) -> None: ...


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
        config = configuration(asked.format, group=asked.group, kv=asked.kv)
        tokens = _quantize(model, config, used, progress)
        found = quantizers(model)
        progress.stage("count clipping", _count(held))
        clipped = _clipped(model, found, held, progress)
        amaxes = [float(each.quantizer.amax.float().max()) for each in found]
        layers = [(each.layer, each.kind) for each in found]
        progress.stage("export calibrated checkpoint", 0)
        _export(model, folder)
    scales = _scales(folder, layers)
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
            QuantizerRecord(f"{layer}.{_name(kind)}", tokens[layer], amax, scale, share)
            for (layer, kind), amax, scale, share in rows
        ),
    )
    return with_weights_of(checkpoint, folder), report


def _quantize(
    model: Any, config: dict[str, Any], runs: Sequence[Batch], progress: Stages
) -> Counter[str]:
    """Have modelopt measure and scale a model in place, and give the tokens that each layer saw.

    Raises:
        BuildError: one saw none, which would leave it without a scale.
    """
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)
    import torch  # noqa: PLC0415

    nvfp4_backend.register()
    torch.manual_seed(0)
    seen: Counter[str] = Counter()
    passes = 0

    def show(shown: Any) -> None:
        nonlocal passes
        passes += 1
        seen.clear()  # some algorithms look twice: the report tells of one pass
        progress.stage(f"calibrate, pass {passes}", _count(runs))
        with counting_tokens(shown, seen):
            run(shown, runs, progress)

    mtq.quantize(model, config, show)
    unseen = sorted({each.layer for each in quantizers(model)} - set(seen))
    if unseen:
        raise BuildError(
            f"no token of the samples reached {', '.join(unseen[:5])}, so that nothing tells their scales; give more "
            "text with --calib"
        )
    return seen


def run(model: Any, runs: Sequence[Batch], progress: Stages) -> None:
    """Run a model over batches; what it answers is dropped."""
    import torch  # noqa: PLC0415 (of the extra `quant`)

    with torch.inference_mode():
        for batch in runs:
            ids, positions = map(torch.from_numpy, (batch.token_ids, batch.positions))
            # Without a mask and a cache, transformers keeps samples apart where positions start again.
            model(
                input_ids=ids.long(),
                position_ids=positions.long(),
                use_cache=False,
                logits_to_keep=1,
            )
            progress.advance(batch.token_ids.size)


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


def _count(runs: Sequence[Batch]) -> int:
    return sum(batch.token_ids.size for batch in runs)


def _record(samples: Samples, used: Sequence[Batch], held: Sequence[Batch]) -> SampleRecord:
    return SampleRecord(
        name=samples.name,
        sha256=samples.sha256,
        num_samples=len(samples.rows),
        num_tokens=samples.num_tokens,
        num_text_tokens=samples.num_text_tokens,
        num_measured=_count(used),
        num_checked=_count(held),
        is_held_out=held is not used,
        warning=samples.warning,
    )
