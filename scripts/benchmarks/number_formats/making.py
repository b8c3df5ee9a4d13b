"""Makes the artifact of each format in processes of their own, and tells what each took."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from builder.artifact.store import read_manifest
from builder.checkpoint.open import open_checkpoint
from builder.quant.recipes import RECIPES
from number_formats.catalogue import FORMATS

HERE = Path(__file__).resolve().parent.parent
"""Where `python -m number_formats.NAME` runs."""
MAX_SEQ_LEN = 512


@dataclass(frozen=True, slots=True)
class Cost:
    """What a process took."""

    wall_s: float
    cpu_s: float
    peak_bytes: int
    """Of resident memory."""


@dataclass(frozen=True, slots=True)
class Made:
    """An artifact, and what it took."""

    root: Path
    checkpoint: Path | None
    """What calibration made; None where there was none."""
    calibration: Cost | None
    compilation: Cost
    num_bytes: int
    """Of the artifact's files."""
    bits_per_weight: float
    """Of all weights, table and head included, the scales counted as bits of their weights."""


def make(model: Path, format_name: str, folder: Path, *, samples: int | None) -> Made:
    """Compile a model to a format in `folder`, calibrated before where the format is; once, what is there is taken.

    Raises:
        CalledProcessError: one of the processes failed; it said why.
    """
    source, root, notes = folder / "checkpoint", folder / "artifact", folder / "costs.json"
    is_calibrated = format_name in RECIPES
    if not notes.exists():
        folder.mkdir(parents=True)
        costs = {}
        if is_calibrated:
            worker = [sys.executable, "-m", "number_formats.calibrating", str(model.resolve())]
            count = [] if samples is None else [str(samples)]
            costs["calibration"] = cost_of([*worker, format_name, str(source.resolve()), *count])
        costs["compilation"] = _compile(source if is_calibrated else model, root, format_name)
        notes.write_text(json.dumps({name: asdict(cost) for name, cost in costs.items()}))
    found = {name: Cost(**cost) for name, cost in json.loads(notes.read_text()).items()}
    manifest = read_manifest(root)
    sizes = {path: record.size_bytes for path, record in manifest.files.items()}
    weights = sum(sizes[engine.weights or engine.path] for engine in manifest.engines)
    return Made(
        root,
        source if is_calibrated else None,
        found.get("calibration"),
        found["compilation"],
        sum(sizes.values()),
        round(8 * weights / num_weights(model), 2),
    )


def _compile(model: Path, root: Path, format_name: str) -> Cost:
    options = () if format_name in RECIPES else FORMATS[format_name].options
    builder = Path(sys.executable).with_name("builder")
    command = [str(builder), "compile", str(model.resolve()), "-o", str(root.resolve()), "-q"]
    return cost_of([*command, *options, "--max-seq-len", str(MAX_SEQ_LEN)])


def cost_of(command: list[str]) -> Cost:
    """Run a process to its end.

    Raises:
        CalledProcessError: it failed.
    """
    measured = [sys.executable, "-m", "number_formats.measuring", *command]
    found = subprocess.run(measured, cwd=HERE, stdout=subprocess.PIPE, check=False)
    if found.returncode:
        raise subprocess.CalledProcessError(found.returncode, command)
    return Cost(**json.loads(found.stdout))


def num_weights(model: Path) -> int:
    """Count the numbers of a model; a head that is the table counts once."""
    return sum(math.prod(each.shape) for each in open_checkpoint(str(model)).tensors.values())
