"""What a checkpoint that is quantized already asks of targets, in place of options."""

from dataclasses import replace

from builder.checkpoint.tensors import Checkpoint
from builder.quant import FORMATS
from builder.quant.imported import imported_precision, refuse_others, regrouped
from builder.quant.plan import Precision
from builder.targets.compiler import TargetOptions, load_compiler


def check(checkpoint: Checkpoint, options: TargetOptions) -> Precision | None:
    """Give what most weights of a checkpoint are quantized to, None for floats; refuse options that ask for another.

    Raises:
        UnsupportedError: they do, or its format is not implemented.
    """
    found = imported_precision(checkpoint)
    if found is not None:
        refuse_others(found, options.format, options.group, options.dtype)
    return found


def options_for(target: str, options: TargetOptions, imported: Precision | None) -> TargetOptions:
    """Say to a target, in groups that it has, what a quantized checkpoint holds.

    Raises:
        UnsupportedError: it has none that divide the checkpoint's.
    """
    if imported is None:
        return options
    groups = load_compiler(target).groups(imported.name)
    fitting = regrouped(imported, groups, "the checkpoint")
    is_own = fitting.group == FORMATS[fitting.name].GROUP
    return replace(options, quant=fitting.name, group=None if is_own else fitting.group)
