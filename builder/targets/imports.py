"""What weights that are quantized before a graph is there ask of targets, in place of options: by a checkpoint, or by calibration."""

from dataclasses import replace

from builder.artifact.config import ModelConfig
from builder.checkpoint.tensors import Checkpoint
from builder.quant import FORMATS
from builder.quant.imported import imported_precision, refuse_others, regrouped
from builder.quant.plan import Precision
from builder.quant.recipes import RECIPES, group_for, refuse_unscaled
from builder.targets.compiler import TargetOptions, load_compiler


def check(checkpoint: Checkpoint, options: TargetOptions) -> Precision | None:
    """Give what most weights of a checkpoint are quantized to, None for floats; refuse options that ask for another.

    Raises:
        UnsupportedError: they do, or its format is not implemented, or they ask of floats for what only calibration gives.
    """
    found = imported_precision(checkpoint)
    if found is None:
        refuse_unscaled(options.quant)
    else:
        asked = options.format if options.bits is None else options.quant
        refuse_others(found, asked, options.group, options.dtype)
    return found


def calibrated(config: ModelConfig, options: TargetOptions) -> Precision | None:
    """Give what calibration makes of the weights of linear layers, in the group that fits them; None where options ask for none.

    Raises:
        UnsupportedError: no group does, or options contradict each other.
    """
    if options.quant not in RECIPES:
        return None
    sizes = (config.hidden_size, config.intermediate_size, config.num_heads * config.head_dim)
    return replace(options, group=group_for(options.quant, sizes, options.group)).precision


def options_for(target: str, options: TargetOptions, held: Precision | None) -> TargetOptions:
    """Say to a target, in groups that it has, what a quantized checkpoint holds or will hold.

    Raises:
        UnsupportedError: it has none that divide the checkpoint's.
    """
    if held is None:
        return options
    groups = load_compiler(target).groups(held.name)
    fitting = regrouped(held, groups, "the checkpoint")
    is_own = fitting.group == FORMATS[fitting.name].GROUP
    return replace(options, quant=fitting.name, group=None if is_own else fitting.group)
