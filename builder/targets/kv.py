"""How a build keeps keys and values: what options ask for, what the checkpoint brings along, and what targets make of both."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from builder.artifact.config import FIXED_SCALES, KVGeometry, ModelConfig
from builder.checkpoint.kv_scales import KVScales
from builder.errors import BuildError, CheckpointError, UnsupportedError
from builder.quant.recipes import KV_RECIPES
from builder.targets.compiler import TargetOptions, load_compiler


def with_kv(options: TargetOptions, scales: KVScales | None, *, calibrates: bool) -> TargetOptions:
    """Ask for keys and values as the checkpoint says they are, unless options say otherwise; `calibrates` if scales can be made.

    Raises:
        UnsupportedError: options ask for fixed scales that the checkpoint lacks, and that are not made either.
    """
    own = None if scales is None else scales.dtype
    is_missing = options.kv in FIXED_SCALES and options.kv != own
    if is_missing and calibrates and options.kv not in KV_RECIPES:
        raise UnsupportedError(
            f"--kv {options.kv} is not calibrated; with format {options.quant} there is --kv {', '.join(KV_RECIPES)}"
        )
    if is_missing and not calibrates:
        has = "no KV scales" if own is None else f"KV scales of {own}"
        raise UnsupportedError(
            f"--kv {options.kv} needs KV scales, and the checkpoint has {has}: "
            "compile it with a calibrated format such as --fp8 --kv fp8, or leave out --kv"
        )
    return replace(options, kv=options.kv or own)


def geometry(
    config: ModelConfig,
    block_size: int,
    options: Mapping[str, TargetOptions],
    *,
    scales: KVScales | None,
) -> KVGeometry:
    """Cut KV memory in the one way that all targets, by name, share; fixed scales go with the layers that they are of.

    Raises:
        UnsupportedError: a target can't with blocks of this size, or two of them differ.
        CheckpointError: there are scales, but not of every layer.
    """
    (first, *others) = options
    kv = load_compiler(first).kv_geometry(config, block_size, options[first])
    for name in others:
        if load_compiler(name).kv_geometry(config, block_size, options[name]) != kv:
            raise UnsupportedError(
                f"targets {first} and {name} keep keys and values in different forms; add --kv float32, or compile for "
                "each by itself"
            )
    return kv if scales is None else with_scales(kv, scales)


def with_scales(kv: KVGeometry, scales: KVScales) -> KVGeometry:
    """Give the geometry with fixed scales, in the groups of layers that are stored in their precision.

    Raises:
        CheckpointError: they are not those of every layer.
    """
    num_layers = sum(len(group.layers) for group in kv.groups)
    if len(scales.keys) != num_layers:
        raise CheckpointError(
            f"the checkpoint has KV scales of {len(scales.keys)} layers, by config.json there are {num_layers}"
        )
    groups = [
        replace(
            group,
            key_scales=tuple(scales.keys[layer] for layer in group.layers),
            value_scales=tuple(scales.values[layer] for layer in group.layers),
        )
        if group.dtype == scales.dtype
        else group
        for group in kv.groups
    ]
    return replace(kv, groups=tuple(groups))


def calibrated(kv: KVGeometry) -> str | None:
    """Give the precision with fixed scales that a geometry waits for; None where it has all that it needs."""
    waiting = (group.dtype for group in kv.groups if not group.key_scales)
    return next((dtype for dtype in waiting if dtype in FIXED_SCALES), None)


def with_calibrated(kv: KVGeometry, scales: KVScales | None) -> KVGeometry:
    """Give the geometry with the scales that it waits for, if it does.

    Raises:
        BuildError: calibration made none.
    """
    waiting = calibrated(kv)
    if waiting is None:
        return kv
    if scales is None or scales.dtype != waiting:
        raise BuildError(f"calibration made no scales for keys and values in {waiting}")
    return with_scales(kv, scales)


def notes(kv: KVGeometry, scales: KVScales | None) -> Iterator[str]:
    """Say that keys and values are kept otherwise than the checkpoint says."""
    if scales is not None and any(group.dtype != scales.dtype for group in kv.groups):
        kept = ", ".join(dict.fromkeys(group.dtype for group in kv.groups))
        yield f"the checkpoint's scales for keys and values in {scales.dtype} are not used: --kv {kept}"
