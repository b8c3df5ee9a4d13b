"""Which configuration of modelopt makes which format.

modelopt 0.47 takes an ordered list of rules, later ones over earlier ones; heads, norms and embeddings are left out by its own.
"""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from builder.errors import UnsupportedError
from builder.quant.calibration.nvfp4_backend import BACKEND


@dataclass(frozen=True, slots=True)
class Recipe:
    """How modelopt makes a format."""

    config: str
    """Its public name in `modelopt.torch.quantization`."""
    extra_bytes: float
    """Memory of calibration and export for each parameter, beside the weights."""
    groups: tuple[int, ...] = ()
    """Groups of inputs to choose from, the best first; none where the format fixes them."""


RECIPES = {
    "fp8": Recipe("FP8_DEFAULT_CFG", 0.25),
    "nvfp4": Recipe("NVFP4_DEFAULT_CFG", 0.25),
    "int8-smoothquant": Recipe("INT8_SMOOTHQUANT_CFG", 0.25),
    "int4-awq": Recipe("INT4_AWQ_CFG", 0.5, groups=(128, 64, 32)),
}
"""By format of `builder.quant`; formats that are not here need no calibration."""
KV_RECIPES = {"fp8": "FP8_KV_CFG"}
"""Rules for keys and values, by their precision."""


def group_for(format_name: str, sizes: Iterable[int], asked: int | None = None) -> int:
    """Give the group of a format that divides all numbers of inputs, the one asked for if any; 0 where the format fixes it.

    Raises:
        UnsupportedError: none does.
    """
    groups, inputs = RECIPES[format_name].groups, sorted(set(sizes))
    if not groups:
        return 0
    allowed = [group for group in groups if asked in (None, group)]
    fitting = [group for group in allowed if not any(size % group for size in inputs)]
    if not fitting:
        given = "" if asked is None else f" in groups of {asked or 'a whole channel'}"
        raise UnsupportedError(
            f"format {format_name}{given}: it has groups of {', '.join(map(str, groups))} inputs that divide all layers, and "
            f"this model has layers of {', '.join(map(str, inputs))} inputs; --int4 takes any"
        )
    return fitting[0]


def configuration(format_name: str, *, group: int, kv: str | None) -> dict[str, Any]:
    """Give modelopt's configuration of a format, in groups of `group` where it has a choice, with keys and values in `kv`."""
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)

    config: dict[str, Any] = copy.deepcopy(getattr(mtq, RECIPES[format_name].config))
    if kv in KV_RECIPES:
        config["quant_cfg"] += copy.deepcopy(getattr(mtq, KV_RECIPES[kv])["quant_cfg"])
    for rules in _quantizers(config):
        if rules.get("num_bits") == (2, 1):
            rules["backend"] = BACKEND  # modelopt's own needs a GPU
        if group and rules.get("num_bits") == 4:
            rules["block_sizes"] = {**rules["block_sizes"], -1: group}
    return config


def _quantizers(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for rule in config["quant_cfg"]:
        rules = rule.get("cfg") or []
        yield from rules if isinstance(rules, list) else [rules]
