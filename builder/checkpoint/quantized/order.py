"""Which group each input of a weight belongs to, where a checkpoint says so itself (`g_idx`)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import num_groups
from builder.checkpoint.quantized.numbers import numbers
from builder.checkpoint.rows import RowScales
from builder.checkpoint.tensors import Tensor
from builder.errors import CheckpointError, UnsupportedError

Order = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Grouping:
    """How inputs become runs of one group each."""

    groups: Order
    """For each run the group whose scale it has, `[groups]`."""
    inputs: Order | None = None
    """The inputs in the order of their groups, `[in]`, where these are no runs (desc_act, actorder group)."""

    @property
    def row_scales(self) -> RowScales:
        """The same said of rows."""
        inputs = self.inputs
        return RowScales() if inputs is None else RowScales(order=lambda: inputs)

    def in_runs(self, values: NDArray[Any]) -> NDArray[Any]:
        """Put numbers `[out, in]` in the order of their groups."""
        return values if self.inputs is None else np.ascontiguousarray(values[:, self.inputs])


def grouping(tensor: Tensor | None, size_in: int, group: int) -> Grouping:
    """Read the groups of inputs; they are runs, ascending, where nothing is said.

    Raises:
        CheckpointError: a group is named that does not exist.
        UnsupportedError: a group but the last has more or fewer inputs than the others.
    """
    count = num_groups(size_in, group)
    if tensor is None:
        return Grouping(np.arange(count))
    named: NDArray[Any] = numbers(tensor).astype(np.int64)
    if named.min() < 0 or named.max() >= count:
        raise CheckpointError(
            f"tensor {tensor.name} names group {int(named.max())}, but there are {count}; download the checkpoint again"
        )
    width = group or size_in
    firsts: Order = named[::width]
    are_runs = np.array_equal(named, np.repeat(firsts, width)[:size_in])
    if are_runs and len(set(firsts.tolist())) == count and not _ends_short(firsts, size_in, width):
        return Grouping(firsts)
    inputs: Order = np.argsort(named, kind="stable")
    if not np.array_equal(named[inputs], np.arange(size_in) // width):
        raise UnsupportedError(
            f"tensor {tensor.name}: its groups are not of {width} inputs each, which is not supported; quantize it with "
            "desc_act false, or with static groups"
        )
    return Grouping(np.arange(count), inputs)


def _ends_short(firsts: Order, size_in: int, width: int) -> bool:
    """Tell whether a short group, which must be the last, is another one."""
    return bool(size_in % width) and firsts[-1] != len(firsts) - 1
