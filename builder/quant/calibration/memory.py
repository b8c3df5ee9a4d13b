"""How much memory a calibration takes, known before it starts.

Set so that it is above what was measured to FP8: 2.15 GiB for 135 million parameters of float32 with all samples, 1.6 GiB for 365
million of bfloat16.
"""

from dataclasses import dataclass

from builder.checkpoint.tensors import Checkpoint
from builder.errors import UserError
from builder.quant.calibration.model import stored_dtype
from builder.quant.calibration.samples import ROW, ROWS
from builder.quant.recipes import AUTO, RECIPES

LIBRARY_BYTES = 700 << 20
"""torch, transformers and modelopt themselves."""
WEIGHT_BYTES = {"bfloat16": 2.0, "float32": 4.0}
SHARD_BYTES = 1 << 30
"""What the export holds of a checkpoint at most while it writes it."""
ACTIVATIONS = 400
"""Bytes that a batch takes for each token and each number of the widest layer."""
LOGIT_BYTES = 24
"""That a search takes for each logit of a row: themselves, in float32, their losses, and gradients of all these."""


@dataclass(frozen=True, slots=True)
class Need:
    """What a calibration takes."""

    num_parameters: int
    bytes_per_parameter: float
    total_bytes: int
    """Resident memory at its worst."""
    exported_bytes: int
    """Of the checkpoint that is written, at most."""


def need(checkpoint: Checkpoint, format_name: str) -> Need:
    """Estimate the resident memory of a calibration at its worst."""
    matrices = [tensor.shape for tensor in checkpoint.tensors.values() if len(tensor.shape) == 2]
    count = sum(rows * columns for rows, columns in matrices)
    each = WEIGHT_BYTES[stored_dtype(checkpoint)] + RECIPES[format_name].extra_bytes
    width = max((min(shape) for shape in matrices), default=0)
    largest = 4 * max((rows * columns for rows, columns in matrices), default=0)
    rows = ROW * ROWS * width * ACTIVATIONS
    exported = int(count * WEIGHT_BYTES[stored_dtype(checkpoint)])
    fixed = LIBRARY_BYTES + largest + rows + min(SHARD_BYTES, exported)
    if (
        format_name == AUTO
    ):  # gradients of logits, and of the embedding table, which they go back to
        fixed += ROW * LOGIT_BYTES * max((shape[0] for shape in matrices), default=0) + largest
    return Need(count, each, fixed + int(count * each), exported)


def check_memory(found: Need, format_name: str, available: int) -> None:
    """Refuse a calibration that can't fit into memory.

    Raises:
        UserError: says what it takes, what there is, and what to do.
    """
    if found.total_bytes > available:
        raise UserError(
            f"calibrating {found.num_parameters / 1e9:.2f} billion parameters takes about {_gib(found.total_bytes)} GiB of "
            f"memory ({found.bytes_per_parameter:g} bytes each), and {_gib(available)} GiB are available; fewer samples do "
            f"not help: use a machine with {_gib(found.total_bytes + (2 << 30))} GiB, or --quant "
            f"{RECIPES[format_name].instead}, which needs no calibration"
        )


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
