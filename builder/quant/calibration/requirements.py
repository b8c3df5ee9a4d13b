"""What calibration needs that does not come with Forerun itself."""

from importlib.util import find_spec

from builder.errors import UnsupportedError
from builder.quant.recipes import RECIPES, asked_for

LIBRARIES = ("torch", "transformers", "modelopt")


def check_installed(format_name: str) -> None:
    """Refuse a format that is calibrated where the libraries for it are missing; a checkpoint is not needed to tell.

    Raises:
        UnsupportedError: names the extra, and the format that does without.
    """
    missing = [name for name in LIBRARIES if find_spec(name) is None]
    if format_name in RECIPES and missing:
        raise UnsupportedError(
            f"{asked_for(format_name)} is calibrated, which needs {', '.join(missing)}: run scripts/install quant in a checkout, or "
            f'pip install "forerun[quant]"; or '
            f"choose --quant {RECIPES[format_name].instead}, which needs no calibration; for a checkpoint that is quantized "
            "already, leave the format out"
        )
