"""Which names Triton can start a model with: it hands them to a shell, unquoted, and waits for ever if that goes wrong."""

import re
from pathlib import Path

from builder.errors import UserError

MODEL = re.compile(r"[\w.+@=,:%-]+")
FOLDER = re.compile(r"[\w.+@=,:%/-]+")
ALLOWED = "letters, digits and . _ - + @ = , : %"


def check_model_name(folder: Path) -> None:
    """Refuse a model by the name of its folder.

    Raises:
        UserError: Triton could not start it.
    """
    if not MODEL.fullmatch(folder.name):
        raise UserError(f"{folder}: a model's name may have {ALLOWED}; rename it")


def check_private_folder(folder: Path) -> None:
    """Refuse a folder for temporary files.

    Raises:
        UserError: Triton could not start a model in it.
    """
    if not FOLDER.fullmatch(str(folder)):
        raise UserError(
            f"{folder.parent} can't hold the private folder of a server: its path may have {ALLOWED};"
            " set TMPDIR to another folder"
        )
