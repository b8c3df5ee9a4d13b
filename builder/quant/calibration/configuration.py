"""The configuration of modelopt that makes a format.

modelopt 0.47 takes an ordered list of rules, later ones over earlier ones; heads, norms and embeddings are left out by its own.
"""

import copy
from collections.abc import Iterator
from typing import Any

from builder.quant.calibration.nvfp4_backend import BACKEND
from builder.quant.recipes import KV_RECIPES, RECIPES


def configuration(quant: str, *, group: int, kv: str | None) -> dict[str, Any]:
    """Give modelopt's configuration of a format, in groups of `group` where it has a choice, with keys and values in `kv`."""
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)

    config: dict[str, Any] = copy.deepcopy(getattr(mtq, RECIPES[quant].config))
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
