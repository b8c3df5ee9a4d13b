"""Which group each input of a weight belongs to, where a checkpoint says so itself (`g_idx`)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.checkpoint.groups import num_groups
from builder.checkpoint.quantized.numbers import numbers
from builder.checkpoint.tensors import Tensor
from builder.errors import CheckpointError, UnsupportedError

Order = NDArray[np.int64]


def group_order(tensor: Tensor | None, size_in: int, group: int) -> Order:
    """Give for each run of inputs the group whose scale it has, `[groups]`; ascending where nothing is said.

    Raises:
        CheckpointError: a group is named that does not exist.
        UnsupportedError: groups are no runs of inputs. An engine would have to permute the rows that it multiplies, which
            takes time at every step; no layer before q, k, v, gate, up and o could give them permuted.
    """
    count = num_groups(size_in, group)
    if tensor is None:
        return np.arange(count)
    named: NDArray[Any] = numbers(tensor).astype(np.int64)
    if named.min() < 0 or named.max() >= count:
        raise CheckpointError(
            f"tensor {tensor.name} names group {int(named.max())}, but there are {count}; download the checkpoint again"
        )
    width = group or size_in
    firsts: Order = named[::width]
    are_runs = np.array_equal(named, np.repeat(firsts, width)[:size_in])
    if not are_runs or len(set(firsts.tolist())) < count or _ends_short(firsts, size_in, width):
        raise UnsupportedError(
            f"tensor {tensor.name}: its groups are no runs of inputs, since it was quantized in the order of activations "
            "(desc_act, actorder group), which is not supported; quantize it with desc_act false, or with static groups"
        )
    return firsts


def _ends_short(firsts: Order, size_in: int, width: int) -> bool:
    """Tell whether a short group, which must be the last, is another one."""
    return bool(size_in % width) and firsts[-1] != len(firsts) - 1
