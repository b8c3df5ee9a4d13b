"""Formats whose scales are calibrated, by what a user asks for: how modelopt makes them, and what numbers come out."""

from collections.abc import Iterable
from dataclasses import dataclass

from builder.checkpoint import rows
from builder.errors import UnsupportedError
from builder.quant import FORMATS


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a format is calibrated."""

    configs: dict[str, str]
    """Public names of modelopt's configurations in `modelopt.torch.quantization`, by the format of FORMATS that comes out.

    Of several, a search chooses one for each layer, or none; the first takes the most memory.
    """
    instead: str
    """What comes nearest and needs no calibration, of FORMATS."""
    extra_bytes: float
    """Memory of calibration and export for each parameter, beside the weights."""
    groups: tuple[int, ...] = ()
    """Groups of inputs to choose from, the best first; none where the format fixes them."""


FP8, NVFP4 = "FP8_DEFAULT_CFG", "NVFP4_DEFAULT_CFG"
AUTO = "auto"
"""The one that searches, and needs a budget for it."""
LEAST_BITS, FLOAT_BITS = 4.5, 16.0
"""Of a layer in NVFP4, its scales counted, and of one that stays as it is; a budget lies between them."""
RECIPES = {
    "fp8": Recipe({"fp8": FP8}, "fp8-dynamic", 0.1),
    "nvfp4": Recipe({"nvfp4": NVFP4}, "nvfp4-weight-only", 0.25),
    "int8-smoothquant": Recipe({"int8-static": "INT8_SMOOTHQUANT_CFG"}, "int8", 0.25),
    "int4-awq": Recipe({"int4": "INT4_AWQ_CFG"}, "int4", 0.5, groups=(128, 64, 32)),
    "auto": Recipe({"fp8": FP8, "nvfp4": NVFP4}, "fp8-dynamic", 0.25),
}
"""By what a user asks for; formats that are not here need no calibration."""
KV_RECIPES = {"fp8": "FP8_KV_CFG"}
"""modelopt's rules for keys and values, by their precision."""


def number_formats(quant: str) -> tuple[str, ...]:
    """Give the formats of FORMATS that are asked for, whatever finds their scales, the largest first; `none` as it is."""
    return tuple(RECIPES[quant].configs) if quant in RECIPES else (quant,)


def asked_for(quant: str) -> str:
    """Say what of the command line asks for a recipe."""
    return "--auto-quant" if quant == AUTO else f"format {quant}"


def label_for(quant: str, group: int, bits: float | None) -> str:
    """Name what is calibrated, with its group or budget where it has one, such as `int4-awq-g64` and `auto-6.0-bits`."""
    if bits is not None:
        return f"{quant}-{float(bits)}-bits"
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
    makers = [
        f"--quant {name}"
        for name, recipe in RECIPES.items()
        if quant in recipe.configs and name != AUTO
    ]
    raise UnsupportedError(
        f"format {quant} has fixed scales for rows, which the checkpoint lacks; {' or '.join(makers)} calibrates them"
    )
