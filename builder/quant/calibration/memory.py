"""How much memory a calibration takes, known before it starts.

Set so that it is above what was measured. In float32, 135 million parameters: 1.4 GiB to SmoothQuant, 1.5 to NVFP4, 2.0 to AWQ, 2.7
with a search. In bfloat16, 1.07 billion to FP8: 3.0 GiB, of which 2.0 are weights, 0.6 libraries and 0.4 a batch.
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
SLACK_BYTES = 1 << 30
"""At most, for a small model as much as its weights: what the export writes at once, and what is freed and not given back."""
ACTIVATIONS = 100
"""Numbers that a batch takes for each token and each number of a hidden state, in the type of the weights."""
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
    rows = int(ROW * ROWS * width * ACTIVATIONS * WEIGHT_BYTES[stored_dtype(checkpoint)])
    exported = int(count * WEIGHT_BYTES[stored_dtype(checkpoint)])
    fixed = LIBRARY_BYTES + largest + rows + min(SLACK_BYTES, exported)
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
