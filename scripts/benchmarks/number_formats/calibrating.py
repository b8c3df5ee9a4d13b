"""Calibrates a Hugging Face folder to a format, in a process of its own so that its memory can be told.

Usage: python -m number_formats.calibrating MODEL FORMAT FOLDER [SAMPLES].
"""

import shutil
import sys
from pathlib import Path

from builder.checkpoint.open import open_checkpoint
from builder.cli.calibration.encoding import encode_samples
from builder.cli.calibration.texts import read_calibration_text
from builder.quant.calibration.calibrate import Calibration, calibrate

WEIGHTS = ("config.json", "hf_quant_config.json")
"""Files that calibration writes itself, besides weights."""


class Unheard:
    """Is told how far it is, and tells nobody."""

    def stage(self, name: str, total: int) -> None:
        """Begin a stage."""

    def advance(self, amount: int) -> None:
        """Report tokens done."""


def main() -> None:
    """Write the calibrated checkpoint, with the tokenizer of the model."""
    model, format_name, folder = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    num_samples = int(sys.argv[4]) if sys.argv[4:] else None
    checkpoint = open_checkpoint(str(model))
    samples = encode_samples(read_calibration_text(None, num_samples), checkpoint.tokenizer)
    calibrate(checkpoint, Calibration(format_name, samples), folder, Unheard())
    for file in model.iterdir():
        if file.is_file() and ".safetensors" not in file.name and file.name not in WEIGHTS:
            shutil.copy(file, folder / file.name)


if __name__ == "__main__":
    main()
