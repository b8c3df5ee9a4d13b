"""Export an artifact to a Hugging Face folder: everything that can be refused is, then all of it is written or nothing."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from builder import archs
from builder.artifact.config import FIXED_SCALES, KVGroup
from builder.artifact.staging import Kind, check_place, staged, swap
from builder.artifact.store import Artifact
from builder.artifact.weights import WeightSpec, write_weights
from builder.checkpoint.sources.safetensors_file import read_metadata
from builder.checkpoint.weights import EMBEDDING
from builder.errors import CheckpointError, UnsupportedError, UserError
from builder.export import modelopt, tokenizer
from builder.export.arrange import arrange
from builder.export.kv_scales import kv_field, kv_specs
from builder.export.layouts import PLAIN, Layout, layout_of, specs_of

CONFIG, WEIGHTS = "config.json", "model.safetensors"
FILES = (CONFIG, WEIGHTS, modelopt.FILE_NAME, *tokenizer.FILES)
MARK = "forerun"
"""What the metadata of our weights names: a folder of somebody else is never replaced."""
SPARE_BYTES = 64 << 20
"""Room for what is written beside the weights; tokenizers are the largest, at some 30 MB."""


@dataclass(frozen=True, slots=True)
class Export:
    """What will be written, known before a number is read."""

    artifact: Artifact
    layout: Layout | None
    config: dict[str, Any]
    specs: tuple[WeightSpec, ...]

    @property
    def layout_name(self) -> str:
        """Name the layout for people."""
        return PLAIN if self.layout is None else self.layout.name

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(spec.size_bytes for spec in self.specs)


def plan_export(artifact: Artifact, target: str | None) -> Export:
    """Decide everything about an export of an artifact that was opened, which is to say checked.

    Raises:
        ArtifactError: it has no engine for the target.
        UnsupportedError: it has several, or holds what no layout holds exactly.
    """
    chosen = _choose(artifact, target)
    arranged = arrange(artifact, chosen)
    layout = layout_of(arranged.weights)
    scaled = _scaled_kv(artifact, layout)
    (embedding,) = (weight for weight in arranged.weights if weight.name == EMBEDDING)
    config = {
        **archs.write_config(arranged.config),
        **tokenizer.token_fields(artifact.manifest.tokenizer),
        "dtype": embedding.precision,
        "torch_dtype": embedding.precision,
    }
    if layout is not None:
        linear = [w for w in arranged.weights if len(w.shape) == 2 and w is not embedding]
        config["quantization_config"] = layout.section(linear) | kv_field(scaled)
    specs = [spec for weight in arranged.weights for spec in specs_of(weight, layout)]
    if layout is not None and layout.kv is not None:
        specs += kv_specs(scaled, layout.kv)
    return Export(artifact, layout, config, tuple(specs))


def check_destination(artifact: Path, destination: Path, *, replace_existing: bool) -> None:
    """Refuse a folder that an export may not write.

    Raises:
        UserError: it lies in the artifact, or holds something else than an export.
    """
    destination = destination.resolve()
    if destination.is_relative_to(artifact.resolve()):
        raise UserError(
            f"--hf {destination} lies in the artifact, which would be damaged by it; choose another --hf"
        )
    check_place(destination, FOLDER, replace_existing=replace_existing)


def write_export(
    export: Export,
    destination: Path,
    *,
    advance: Callable[[int], None],
    replace_existing: bool = False,
) -> None:
    """Write the folder, or nothing.

    Raises:
        UserError: the destination is taken, or there is too little room.
        BuildError: the disk is full.
    """
    destination, root = destination.resolve(), export.artifact.root
    check_destination(root, destination, replace_existing=replace_existing)
    free, needed = shutil.disk_usage(destination.parent).free, export.num_bytes + SPARE_BYTES
    if free < needed:
        raise UserError(
            f"{destination.parent} has {free >> 20} MiB free, the export needs {needed >> 20}; free some space or choose "
            "another --hf"
        )
    with staged(destination) as folder:
        write_weights(
            folder / WEIGHTS,
            export.specs,
            advance,
            metadata={"format": "pt", MARK: version("forerun")},
        )
        tokenizer.write_json(folder / CONFIG, export.config)
        section = export.config.get("quantization_config", {})
        if section.get("quant_method") == modelopt.METHOD:
            tokenizer.write_json(folder / modelopt.FILE_NAME, modelopt.own_file(section))
        tokenizer.write_tokenizer(export.artifact, folder)
        check_destination(root, destination, replace_existing=replace_existing)
        swap(folder, destination)


def _choose(artifact: Artifact, target: str | None) -> str:
    """Give the target whose engine is exported.

    Raises:
        UnsupportedError: there are several, and none is named.
    """
    held = list(dict.fromkeys(engine.target for engine in artifact.manifest.engines))
    if target is not None:
        return target
    if len(held) > 1:
        raise UnsupportedError(
            f"{artifact.root} has engines for {' and '.join(held)}, which may hold different numbers; name one with --target"
        )
    return held[0]


def _scaled_kv(artifact: Artifact, layout: Layout | None) -> list[KVGroup]:
    """List the groups of keys and values that have scales of their own.

    Raises:
        UnsupportedError: the layout has no place for them.
    """
    scaled = [group for group in artifact.manifest.kv.groups if group.dtype in FIXED_SCALES]
    if scaled and (layout is None or layout.kv is None):
        raise UnsupportedError(
            f"the artifact keeps keys and values in {scaled[0].dtype} with scales of its own, for which layout "
            f"{PLAIN if layout is None else layout.name} has no place; compile with --kv float32, bfloat16 or int8"
        )
    return scaled


def _is_export_alone(folder: Path) -> bool:
    """Tell whether a folder holds nothing but files of an export, and its weights are one of them."""
    if not folder.is_dir() or folder.is_symlink():
        return False
    names = {path.name for path in folder.iterdir() if path.is_file()}
    if not {CONFIG, WEIGHTS} <= names <= set(FILES) or len(names) < len(list(folder.iterdir())):
        return False
    try:
        return MARK in read_metadata(folder / WEIGHTS)
    except CheckpointError:
        return False


FOLDER = Kind("an exported checkpoint", "--hf", _is_export_alone)
