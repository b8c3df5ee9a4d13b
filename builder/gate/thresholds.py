"""What an artifact may lose against float32: defaults per format, and what a file says instead.

Defaults hold for a format's own groups. They were set from SmolLM2-135M, a small model, which loses more than large ones do.
"""

import json
import math
import re
import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from builder.artifact.config import KVGeometry
from builder.errors import UnsupportedError, UserError, unknown_name


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Bounds of the figures of a gate; a figure on its bound is met."""

    max_kl_mean: float
    """Nats a token."""
    max_kl_p99: float
    """Of the worst token in a hundred."""
    min_agreement: float
    max_perplexity_ratio: float
    min_answers_equal: float
    """Share of the questions."""
    max_answers_lost: float
    """Share of the questions by which fewer answers are right than the reference's."""


DEFAULTS = {
    "float32": Thresholds(1e-5, 1e-4, 0.998, 1.001, 0.95, 0.05),
    "bfloat16": Thresholds(0.001, 0.005, 0.98, 1.005, 0.75, 0.1),
    "int8": Thresholds(0.01, 0.06, 0.94, 1.02, 0.6, 0.15),
    "int4": Thresholds(0.4, 2.5, 0.68, 1.35, 0.15, 0.35),
    "uint4": Thresholds(0.4, 2.5, 0.68, 1.35, 0.15, 0.35),
    "int8-static": Thresholds(0.18, 1.5, 0.8, 1.16, 0.1, 0.3),
    "int8-smoothquant": Thresholds(0.18, 1.5, 0.8, 1.16, 0.1, 0.3),
    "int4-awq": Thresholds(0.4, 2.5, 0.68, 1.35, 0.15, 0.35),
    "int8-weight-only": Thresholds(0.007, 0.04, 0.955, 1.02, 0.7, 0.15),
    "fp8": Thresholds(0.055, 0.32, 0.87, 1.055, 0.5, 0.25),
    "fp8-dynamic": Thresholds(0.05, 0.3, 0.88, 1.05, 0.55, 0.15),
    "fp8-block": Thresholds(0.045, 0.28, 0.89, 1.045, 0.55, 0.15),
    "fp8-weight-only": Thresholds(0.035, 0.2, 0.9, 1.045, 0.6, 0.15),
    "nvfp4": Thresholds(0.65, 4.0, 0.6, 1.75, 0.05, 0.6),
    "nvfp4-weight-only": Thresholds(0.35, 2.0, 0.7, 1.35, 0.15, 0.5),
    "auto": Thresholds(0.75, 4.5, 0.58, 1.8, 0.15, 0.6),
    "mxfp4": Thresholds(0.75, 4.5, 0.58, 1.7, 0.15, 0.6),
}
"""By format of the weights, or by the recipe that calibrates it."""
KV_COSTS = {
    "int8": Thresholds(0.002, 0.02, -0.005, 0.003, -0.05, 0.05),
    "int8-static": Thresholds(0.008, 0.05, -0.05, 0.01, -0.15, 0.1),
    "fp8": Thresholds(0.015, 0.1, -0.06, 0.015, -0.2, 0.1),
}
"""What is added where keys and values are in 8 bits."""


def kv_format(kv: KVGeometry) -> str:
    """Name the precision of keys and values."""
    return ", ".join(dict.fromkeys(group.dtype for group in kv.groups))


def default_thresholds(requested: str, kv: str) -> Thresholds:
    """Give the thresholds of a precision that was asked for, such as `int8-g32`, with keys and values in `kv`.

    Raises:
        UnsupportedError: its format has none.
    """
    known = [name for name in DEFAULTS if re.match(f"{name}(?![^- ])", requested)]
    name = max(known, key=len, default=requested)
    if name not in DEFAULTS:
        raise UnsupportedError(
            f"format {name} has no default thresholds; known are those of {', '.join(DEFAULTS)}"
        )
    found = DEFAULTS[name]
    cost = KV_COSTS.get(kv)
    if cost is None:
        return found
    names = [each.name for each in fields(Thresholds)]
    return Thresholds(**{name: getattr(found, name) + getattr(cost, name) for name in names})


def read_thresholds(path: Path, defaults: Thresholds) -> Thresholds:
    """Read a JSON or TOML file of some thresholds by name; those that it leaves out are as in `defaults`.

    Raises:
        UserError: it can't be read, or a name is unknown or stands there twice, or a value is no number that can be met.
    """
    known = [each.name for each in fields(Thresholds)]
    given = _table(path)
    for name, value in given.items():
        if name not in known:
            raise UserError(f"{path}: {unknown_name('threshold', name, known)}")
        most = math.inf if name.startswith("max_") else 1
        if not _is_bound(value, most):
            allowed = "a number from 0 on" if most > 1 else "a share from 0 to 1"
            raise UserError(f"{path}: {name} must be {allowed}; got {str(value)[:40]}")
    return replace(defaults, **{name: float(value) for name, value in given.items()})


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name stands there twice")
    return found


READERS: dict[str, Callable[[str], Any]] = {
    ".json": partial(json.loads, object_pairs_hook=_each_once),
    ".toml": tomllib.loads,
}


def _table(path: Path) -> dict[str, Any]:
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise UserError(f"--thresholds {path} is neither .json nor .toml; rename it by what it is")
    try:
        given = reader(path.read_text("utf-8"))
    except OSError as error:
        raise UserError(f"--thresholds {path} can't be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:  # of both readers, and of text that is not UTF-8
        raise UserError(f"--thresholds {path} is no valid {path.suffix[1:]}: {error}") from error
    if not isinstance(given, dict):
        raise UserError(f"--thresholds {path} must be one object of names and numbers")
    return given


def _is_bound(value: Any, most: float) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and 0 <= value <= min(most, sys.float_info.max)  # also of ints beyond floats
