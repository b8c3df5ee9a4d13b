"""The tensors of a linear layer that was quantized, each taken by name, type and shape.

A layer counts as quantized as soon as one of its tensors says so: then all its parts must be there.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from builder.checkpoint.quantized_weight import QuantizedWeight
from builder.checkpoint.tensors import FLOATS, Tensor
from builder.checkpoint.weights import EMBEDDING
from builder.errors import CheckpointError

Shape = tuple[int, ...]
WEIGHT = "weight"
NARROW = ("I8", "U8", "I32", "F8_E4M3")
"""Types of a `weight` that tell that it is quantized."""


@dataclass(frozen=True, slots=True)
class Module:
    """A linear layer, by the parts of its name."""

    name: str
    tensors: Mapping[str, Tensor]
    """By the last part of their names."""
    taken: list[Tensor] = field(default_factory=list)

    def part(self, suffix: str, stored: Sequence[str], *shapes: Shape) -> Tensor:
        """Take a part, which must have one of these types and, if any are given, one of these shapes.

        Raises:
            CheckpointError: it is missing or of another kind.
        """
        tensor = self.tensors.get(suffix)
        if tensor is None:
            there = ", ".join(sorted(self.tensors))
            raise CheckpointError(
                f"{self.name} is quantized ({there}), but tensor {self.name}.{suffix} is missing"
            )
        if tensor.stored not in stored:
            raise CheckpointError(
                f"tensor {tensor.name} is stored as {tensor.stored}; it must be {' or '.join(stored)}"
            )
        if shapes and tensor.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise CheckpointError(
                f"tensor {tensor.name} has shape {tensor.shape}; it must be {wanted}"
            )
        self.taken.append(tensor)
        return tensor

    def matrix(self, suffix: str, stored: Sequence[str]) -> tuple[Tensor, int, int]:
        """Take a part with two axes, and give their sizes.

        Raises:
            CheckpointError: it is missing or of another kind.
        """
        tensor = self.part(suffix, stored)
        if len(tensor.shape) != 2 or 0 in tensor.shape:
            raise CheckpointError(
                f"tensor {tensor.name} has shape {tensor.shape}; it must be a matrix"
            )
        return tensor, tensor.shape[0], tensor.shape[1]

    def maybe(self, suffix: str, stored: Sequence[str], *shapes: Shape) -> Tensor | None:
        """Take a part if it is there.

        Raises:
            CheckpointError: it is of another kind.
        """
        return self.part(suffix, stored, *shapes) if suffix in self.tensors else None

    @property
    def num_bytes(self) -> int:
        """Bytes of the parts taken so far."""
        return sum(tensor.nbytes_stored for tensor in self.taken)


class Found(NamedTuple):
    """What a scheme found."""

    modules: Sequence[Module]
    weights: Sequence[QuantizedWeight]
    kv: str | None = None
    """In what keys and values are stored, by fixed scales that must be there."""


def quantized_modules(tensors: Mapping[str, Tensor], parts: Sequence[str]) -> list[Module]:
    """Find the layers that have one of these parts, or a `weight` of narrow numbers, in the order of their tensors."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        module, _, suffix = name.rpartition(".")
        if suffix in parts or (suffix == WEIGHT and tensor.stored in NARROW):
            found.setdefault(module, {})[suffix] = tensor
    for module, own in found.items():
        if (weight := tensors.get(f"{module}.{WEIGHT}")) is not None:
            own[WEIGHT] = weight
    return [Module(name, own) for name, own in found.items()]


def check_lists(
    tensors: Mapping[str, Tensor],
    modules: Sequence[Module],
    *,
    is_excluded: Callable[[str], bool],
    is_target: Callable[[str], bool],
) -> None:
    """Check that what the config lists and what the tensors are agree both ways.

    Raises:
        CheckpointError: an excluded layer is quantized, or one that must be is not.
    """
    quantized = dict.fromkeys(
        module.name for module in modules
    )  # in their order, for errors that stay the same
    for name in quantized:
        if is_excluded(name) or not is_target(name):
            raise CheckpointError(
                f"{name} is quantized, but quantization_config says that it is not: the two contradict each other"
            )
    for name, tensor in tensors.items():
        module, _, suffix = name.rpartition(".")
        is_linear = suffix == WEIGHT and len(tensor.shape) == 2 and name != EMBEDDING
        if not is_linear or module in quantized or is_excluded(module):
            continue
        if tensor.stored in FLOATS and is_target(module):
            raise CheckpointError(
                f"tensor {name} is {tensor.stored}, but quantization_config says that {module} is quantized: the two "
                "contradict each other"
            )


def names_run(listed: Sequence[str], name: str) -> bool:
    """Tell whether one of the listed names is a run of whole parts of a name, as `lm_head` or `layers.0.mlp` are."""
    return any(f".{one}." in f".{name}." for one in listed)
