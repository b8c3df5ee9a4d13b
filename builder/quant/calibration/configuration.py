"""The configurations of modelopt that make a format.

modelopt 0.47 takes an ordered list of rules, later ones over earlier ones; heads, norms and embeddings are left out by its own.
"""

import copy
from collections.abc import Iterator
from typing import Any

from builder.quant.calibration.nvfp4_backend import BACKEND
from builder.quant.recipes import KV_RECIPES, RECIPES


def configurations(quant: str, group: int) -> list[dict[str, Any]]:
    """Give modelopt's configurations of a recipe, in groups of `group` where it has a choice."""
    return [_configuration(name, group) for name in RECIPES[quant].configs.values()]


def kv_rules(kv: str | None) -> list[dict[str, Any]]:
    """Give the rules for keys and values that are in `kv`; none for None."""
    return [] if kv is None else list(_public(KV_RECIPES[kv])["quant_cfg"])


def _public(name: str) -> dict[str, Any]:
    import modelopt.torch.quantization as mtq  # noqa: PLC0415 (of the extra `quant`)

    config: dict[str, Any] = copy.deepcopy(getattr(mtq, name))
    return config


def _configuration(name: str, group: int) -> dict[str, Any]:
    config = _public(name)
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
