"""Check what packing a weight gave before a byte of it is written: every scale does what its group needs.

Whoever made the parts: a scale of 0, infinity or NaN turns weights to nothing, and one at the ceiling of its type may stand
for a larger one that didn't fit.
"""

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import Float32
from builder.errors import BuildError
from builder.quant.floats import E2M1, E4M3, LARGEST
from builder.quant.groups import Parts

ROOM = 1 + 2.0**-10
"""How far a group may lie beyond what a scale at its ceiling reaches: float32 roundings, and no more."""


def group_peaks(weight: Float32, group: int) -> Float32:
    """Give the largest magnitude of each group, `[out, groups]`; NaN where there is one."""
    starts = np.arange(0, weight.shape[1], group or weight.shape[1])
    most, least = (
        np.maximum.reduceat(weight, starts, axis=1),
        np.minimum.reduceat(weight, starts, axis=1),
    )
    peaks: Float32 = np.maximum(most, -least)
    return peaks


def check_weight(name: str, weight: Float32, group: int) -> Float32:
    """Give the peaks of a weight's groups.

    Raises:
        BuildError: it holds a NaN or an infinity; names the tensor.
    """
    peaks = group_peaks(weight, group)
    _refuse(
        name,
        ~np.isfinite(peaks),
        "holds a NaN or an infinity in group {place}: is the checkpoint damaged?",
    )
    return peaks


def check_scales(name: str, peaks: Float32, parts: Parts) -> None:
    """Check the scales `[out, groups]` of a packed weight against the peaks of its groups.

    A third part of no axes is the scale of the whole tensor, with which scales of E4M3 are multiplied.

    Raises:
        BuildError: one of them is wrong; names the tensor, the group and the scale.
    """
    scales = np.abs(parts[1].astype(np.float32)).reshape(peaks.shape)
    whole = np.ones((), np.float32)
    if len(parts) > 2 and not parts[2].ndim:
        whole = parts[2].astype(np.float32)
        wrong = ~np.isfinite(whole) | (whole <= 0)
        _refuse(name, wrong, "has a scale of {value} for the whole tensor", whole)
    _refuse(name, ~np.isfinite(scales), "has a scale of {value} for group {place}", scales)
    _refuse(
        name,
        (scales == 0) & (peaks > 0),
        "has a scale of 0 for group {place}, which is not all zero",
    )
    if parts[1].dtype != E4M3:
        return
    ceiling = np.float32(LARGEST[E4M3])
    beyond = peaks > ceiling * whole * np.float32(LARGEST[E2M1] * ROOM)
    _refuse(
        name,
        (scales == ceiling) & beyond,
        "has a scale at the ceiling of E4M3, {value}, for group {place}, which needs a larger one",
        scales,
    )


def _refuse(name: str, wrong: NDArray[np.bool_], words: str, values: Float32 | None = None) -> None:
    if not wrong.any():
        return
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    shown = "" if values is None else f"{float(values[index]):g}"
    raise BuildError(f"{name} {words.format(place=list(index), value=shown)}")
