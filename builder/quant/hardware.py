"""Which GPUs have which number formats: what `tensorrt:sm80` can't run is refused before anything is read.

Facts of the hardware and of TensorRT, by the element types that a format consists of; a target may yet refuse more. CPUs are no
matter of tables: there the formats say themselves who runs them.
"""

import math
from collections.abc import Iterable, Sequence

from builder.checkpoint.rows import FIXED
from builder.errors import UnsupportedError
from builder.quant import FORMATS, is_emulated
from builder.quant.recipes import AUTO, RECIPES, number_formats

MACHINES = {
    "tensorrt": (80, 86, 89, 90, 100, 103, 120, 121),
    "tensorrt-rtx": (75, 80, 86, 89, 120, 121),
}
"""Compute capabilities that a target builds engines for, ascending."""

LEAST = {
    ("INT8", "FLOAT"): 80,
    ("INT4", "FLOAT"): 80,
    ("FLOAT8E4M3FN", "FLOAT"): 89,
    ("FLOAT4E2M1", "FLOAT8E4M3FN"): 100,
}
"""The first capability that multiplies numbers and scales of these types; what is not here, such as zero points of 4 bits or
scales of E8M0 before FP4, TensorRT doesn't take."""

KV = {
    "tensorrt": ("float32", "bfloat16", "fp8", "int8-static"),
    "tensorrt-rtx": ("float32", "bfloat16"),
}
"""Stored precisions of keys and values: the cache of TensorRT for RTX is floats."""


def check_hardware(targets: Iterable[str], quant: str, kv: str | None) -> None:
    """Refuse a format, or a precision of keys and values, that a GPU target can't run; `quant` may be `none`.

    A target is named `tensorrt` or `tensorrt:sm89`; other targets pass.

    Raises:
        UnsupportedError: names what the target runs, and which targets run the format.
    """
    for asked in targets:
        name, _, machine = asked.partition(":")
        if name not in MACHINES:
            continue
        chosen = _capabilities(name, machine)
        if not set(chosen) & set(capabilities_for(quant, name)):
            raise UnsupportedError(
                f"target {asked} can't run format {quant}; it runs {', '.join(_formats_on(name, chosen))}; {quant} runs on "
                f"{places_of(quant)}"
            )
        if kv is not None and kv not in KV[name]:
            others = [target for target, allowed in KV.items() if kv in allowed]
            instead = f"; {kv} goes with target {', '.join(others)}" if others else ""
            raise UnsupportedError(
                f"target {asked} can't keep keys and values in {kv}; supported: {', '.join(KV[name])}{instead}"
            )


def capabilities_for(quant: str, target: str) -> tuple[int, ...]:
    """List the compute capabilities on which a target runs a format; `none` runs on all."""
    if quant == "none":
        return MACHINES[target]
    rules = [FORMATS[name] for name in number_formats(quant)]
    least = [LEAST.get((each.ELEMENT, each.SCALE), math.inf) for each in rules]
    return tuple(sm for sm in MACHINES[target] if sm >= max(least))


def places_of(quant: str) -> str:
    """Name all targets that run a format, and the first GPU of those that build for some."""
    largest = number_formats(quant)[0]
    found = [
        f"{target} (emulated)" if is_emulated(largest, target) else target
        for target in FORMATS[largest].TARGETS
    ]
    able = {target: capabilities_for(quant, target) for target in MACHINES}
    found += [f"{target}:sm{sms[0]}+" for target, sms in able.items() if sms]
    return ", ".join(found)


def table_of_formats() -> str:
    """Give a line per format: what its scales take, and the targets that run it."""
    names = [name for name in dict.fromkeys((*FORMATS, *RECIPES)) if name != AUTO]
    width = max(map(len, names))
    return "\n".join(f"  {name:{width}}  {_origin(name):11}{places_of(name)}" for name in names)


def _origin(name: str) -> str:
    if name in RECIPES:
        return "calibrated"
    return "imported" if FORMATS[name].ROWS in FIXED else ""


def _capabilities(target: str, machine: str) -> tuple[int, ...]:
    """Give the capability that a target's name says, or all.

    Raises:
        UnsupportedError: the target builds for no such GPU.
    """
    known = {f"sm{sm}": sm for sm in MACHINES[target]}
    if machine and machine not in known:
        others = [
            f"{name}:{machine}" for name, sms in MACHINES.items() if machine[2:] in map(str, sms)
        ]
        instead = f"; or use {others[0]}" if others else ""
        raise UnsupportedError(
            f"target {target} builds nothing for {machine}; supported: {', '.join(known)}{instead}"
        )
    return (known[machine],) if machine else MACHINES[target]


def _formats_on(target: str, chosen: Sequence[int]) -> list[str]:
    return [
        quant for quant in ("none", *FORMATS) if set(chosen) & set(capabilities_for(quant, target))
    ]
