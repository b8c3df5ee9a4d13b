"""Counts what passes through a model that modelopt has made quantizers for: tokens, and numbers that are clipped."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

INPUT, WEIGHT = "input_quantizer", "weight_quantizer"
KV = {"k_bmm_quantizer": "k_proj", "v_bmm_quantizer": "v_proj"}
"""Quantizers of keys and values, by name, and the layers that make those."""


@dataclass(frozen=True, slots=True)
class Found:
    """A quantizer that is on."""

    layer: str
    """Whose numbers it rounds."""
    kind: str
    """Last part of its name in modelopt."""
    quantizer: Any
    weight: Any
    """Of the layer; None for keys and values."""


def quantizers(model: Any) -> list[Found]:
    """List the quantizers that are on, in the order of the model."""
    found = []
    for name, module in model.named_modules():
        layer, _, kind = name.rpartition(".")
        if kind not in (INPUT, WEIGHT, *KV) or not getattr(module, "is_enabled", False):
            continue
        owner = model.get_submodule(layer)
        whose = f"{layer}.{KV[kind]}" if kind in KV else layer
        found.append(Found(whose, kind, module, getattr(owner, "weight", None)))
    return found


def scale_zeros(found: list[Found]) -> None:
    """Give quantizers that saw nothing but zeros a scale: divided by 0 they would become no numbers."""
    for each in found:
        amax = each.quantizer.amax
        if amax is not None and bool((amax == 0).any()):
            each.quantizer.amax = amax.masked_fill(amax == 0, 1.0)


@contextlib.contextmanager
def counting_tokens(model: Any, seen: Counter[str]) -> Iterator[None]:
    """Count in `seen` the tokens that each layer with a quantizer multiplies."""

    def counter(name: str) -> Callable[..., None]:
        def count(_: Any, given: tuple[Any, ...]) -> None:
            seen[name] += given[0].numel() // given[0].shape[-1]

        return count

    with contextlib.ExitStack() as hooks:
        for name, module in model.named_modules():
            if hasattr(module, WEIGHT):
                hooks.callback(module.register_forward_pre_hook(counter(name)).remove)
        yield


@contextlib.contextmanager
def counting_clipped(
    found: list[Found], clipped: Counter[int], total: Counter[int]
) -> Iterator[None]:
    """Count the numbers that pass through quantizers, and those beyond what they reach to, by places in `found`."""

    def counter(place: int) -> Callable[..., None]:
        def count(quantizer: Any, given: tuple[Any, ...]) -> None:
            values, scale = given[0], getattr(quantizer, "pre_quant_scale", None)
            values = values if scale is None else values * scale.to(values.dtype)
            clipped[place] += num_beyond(values, quantizer.amax)
            total[place] += values.numel()

        return count

    with contextlib.ExitStack() as hooks:
        for place, each in enumerate(found):
            if each.kind != WEIGHT:
                hooks.callback(each.quantizer.register_forward_pre_hook(counter(place)).remove)
        yield


def num_beyond(values: Any, amax: Any) -> int:
    """Count the numbers that are larger than the `amax` of their part: equal runs of numbers, one for each amax."""
    parts = values.detach().reshape(amax.numel(), -1).abs()
    return int((parts > amax.reshape(-1, 1).to(parts.dtype)).sum())
