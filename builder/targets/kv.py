"""How a build keeps keys and values: what options ask for, what the checkpoint brings along, and what targets make of both."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from builder.artifact.config import FIXED_SCALES, KVGeometry, ModelConfig
from builder.checkpoint.kv_scales import KVScales
from builder.errors import CheckpointError, UnsupportedError
from builder.targets.compiler import TargetOptions, load_compiler


def with_kv(options: TargetOptions, scales: KVScales | None) -> TargetOptions:
    """Ask for keys and values as the checkpoint says they are, unless options say otherwise.

    Raises:
        UnsupportedError: options ask for fixed scales that the checkpoint lacks.
    """
    own = None if scales is None else scales.dtype
    if options.kv in FIXED_SCALES and options.kv != own:
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
    if scales is None:
        return kv
    if len(scales.keys) != config.num_layers:
        raise CheckpointError(
            f"the checkpoint has KV scales of {len(scales.keys)} layers, by config.json there are {config.num_layers}"
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


def notes(kv: KVGeometry, scales: KVScales | None) -> Iterator[str]:
    """Say that keys and values are kept otherwise than the checkpoint says."""
    if scales is not None and any(group.dtype != scales.dtype for group in kv.groups):
        kept = ", ".join(dict.fromkeys(group.dtype for group in kv.groups))
        yield f"the checkpoint's scales for keys and values in {scales.dtype} are not used: --kv {kept}"
