"""Formats whose scales are calibrated, by what a user asks for: how modelopt makes them, and what numbers come out."""

from collections.abc import Iterable
from dataclasses import dataclass

from builder.checkpoint import rows
from builder.errors import UnsupportedError
from builder.quant import FORMATS


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a format is calibrated."""

    format: str
    """Of the numbers that come out, of FORMATS."""
    config: str
    """Public name of modelopt's configuration in `modelopt.torch.quantization`."""
    instead: str
    """What comes nearest and needs no calibration, of FORMATS."""
    extra_bytes: float
    """Memory of calibration and export for each parameter, beside the weights."""
    groups: tuple[int, ...] = ()
    """Groups of inputs to choose from, the best first; none where the format fixes them."""


RECIPES = {
    "fp8": Recipe("fp8", "FP8_DEFAULT_CFG", "fp8-dynamic", 0.25),
    "nvfp4": Recipe("nvfp4", "NVFP4_DEFAULT_CFG", "nvfp4-weight-only", 0.25),
    "int8-smoothquant": Recipe("int8-static", "INT8_SMOOTHQUANT_CFG", "int8", 0.25),
    "int4-awq": Recipe("int4", "INT4_AWQ_CFG", "int4", 0.5, groups=(128, 64, 32)),
}
"""By what a user asks for; formats that are not here need no calibration."""
KV_RECIPES = {"fp8": "FP8_KV_CFG"}
"""modelopt's rules for keys and values, by their precision."""


def number_format(quant: str) -> str:
    """Give the format of FORMATS that is asked for, whatever finds its scales; `none` as it is."""
    return RECIPES[quant].format if quant in RECIPES else quant


def label_for(quant: str, group: int | None) -> str:
    """Name what is calibrated, with its group where it has a choice, such as `int4-awq-g64`."""
    return f"{quant}-g{group}" if RECIPES[quant].groups else quant


def group_for(quant: str, sizes: Iterable[int], asked: int | None) -> int | None:
    """Give the largest group that divides all numbers of inputs, or the one asked for; `asked` where the format fixes it.

    Raises:
        UnsupportedError: none does.
    """
    groups, inputs = RECIPES[quant].groups, sorted(set(sizes))
    if not groups:
        return asked
    allowed = [group for group in groups if asked in (None, group)]
    fitting = [group for group in allowed if not any(size % group for size in inputs)]
    if not fitting:
        given = "" if asked is None else f" in groups of {asked or 'a whole channel'}"
        raise UnsupportedError(
            f"format {quant}{given}: it has groups of {', '.join(map(str, groups))} inputs that divide all layers, and "
            f"this model has layers of {', '.join(map(str, inputs))} inputs; --int4 takes any"
        )
    return fitting[0]


def refuse_unscaled(quant: str) -> None:
    """Refuse for a checkpoint of floats a format with fixed scales of rows that nothing calibrates by this name.

    Raises:
        UnsupportedError: names what calibrates it.
    """
    if quant not in FORMATS or quant in RECIPES or FORMATS[quant].ROWS not in rows.FIXED:
        return
    makers = [f"--quant {name}" for name, recipe in RECIPES.items() if recipe.format == quant]
    raise UnsupportedError(
        f"format {quant} has fixed scales for rows, which the checkpoint lacks; {' or '.join(makers)} calibrates them"
    )
