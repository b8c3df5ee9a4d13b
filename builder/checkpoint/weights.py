"""Hands out the weights of a checkpoint, each once, and accounts for every one of them.

What an architecture does not take must be known to be harmless, by a rule with a reason; anything else
is an error. A weight that nobody reads is how a model comes out subtly wrong.
"""

import bisect
import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from builder.checkpoint.tensors import Checkpoint, Tensor
from builder.errors import CheckpointError, UnsupportedError

EMBEDDING = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
NEIGHBOURS = 50
"""Names on either side that are looked at for close ones."""
SHOWN = 5
"""Names listed in an error before it says how many more there are."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A kind of tensor that may be left unread."""

    pattern: re.Pattern[str]
    """Matches the whole name."""
    reason: str
    """Why the model is the same without it."""
    holds: Callable[[Checkpoint], bool] = lambda _: True
    """Whether the reason is true of this checkpoint."""


def has_tied_head(checkpoint: Checkpoint) -> bool:
    """Say whether the output head is the embedding table.

    A config that claims so is believed unless the checkpoint has a head of its own with other numbers.
    """
    if checkpoint.config.get("tie_word_embeddings", False) is not True:
        return False
    head, embedding = checkpoint.tensors.get(HEAD), checkpoint.tensors.get(EMBEDDING)
    if head is None or embedding is None:
        return True
    return head.shape == embedding.shape and np.array_equal(head.read(), embedding.read())


SPARES = (
    Spare(
        re.compile(r"(.+\.)?rotary_emb\.inv_freq"),
        "rotary frequencies are computed from the config",
    ),
    Spare(
        re.compile(re.escape(HEAD)),
        "equal to the embedding table that it is tied to",
        has_tied_head,
    ),
)


class WeightReader:
    """The weights of one checkpoint, to be taken once each and settled by `finish`."""

    __slots__ = ("_checkpoint", "_taken")

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self._taken: set[str] = set()

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Give the tensor `name`, for the first and only time.

        Raises:
            CheckpointError: the checkpoint has no such tensor, it has another shape, or it was already taken.
        """
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            near = [known for known in self._checkpoint.tensors if known not in self._taken]
            raise CheckpointError(
                f"the model needs tensor {name!r}, which is missing. {_near(name, near)}"
            )
        if name in self._taken:
            raise CheckpointError(
                f"tensor {name!r} is used twice; each weight has one place in a model"
            )
        if tensor.shape != shape:
            raise CheckpointError(
                f"tensor {name} has shape {tensor.shape}; by config.json it must be {shape}"
            )
        self._taken.add(name)
        return tensor

    def finish(self) -> dict[str, str]:
        """Check that nothing is left over, and give the spared tensors, each with the reason.

        Raises:
            UnsupportedError: tensors are left that no rule spares.
        """
        spared: dict[str, str] = {}
        left: list[str] = []
        for name in self._checkpoint.tensors:
            if name in self._taken:
                continue
            reason = _reason_to_spare(name, self._checkpoint)
            if reason is None:
                left.append(name)
            else:
                spared[name] = reason
        if left:
            more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
            raise UnsupportedError(
                f"the checkpoint has tensors that this architecture does not use: "
                f"{', '.join(left[:SHOWN])}{more}; nothing of a model is ignored"
            )
        return spared


def _reason_to_spare(name: str, checkpoint: Checkpoint) -> str | None:
    for spare in SPARES:
        if spare.pattern.fullmatch(name) and spare.holds(checkpoint):
            return spare.reason
    return None


def _near(name: str, known: list[str]) -> str:
    """Give at most three close names; a list of all tensors would fill the screen."""
    alike = {*_neighbours(name, known, lambda text: text)}
    alike |= {*_neighbours(name, known, lambda text: text[::-1])}
    close = difflib.get_close_matches(name, sorted(alike), n=3, cutoff=0.6)
    return (
        f"Close to it: {', '.join(close)}."
        if close
        else f"None of its {len(known)} tensors is close."
    )


def _neighbours(name: str, known: list[str], key: Callable[[str], str]) -> list[str]:
    """Give the names beside which `name` would be sorted: those that begin like it, by `key`.

    Comparing it to each of 40,000 names takes 16 s.
    """
    ordered = sorted(known, key=key)
    place = bisect.bisect(ordered, key(name), key=key)
    return ordered[max(0, place - NEIGHBOURS) : place + NEIGHBOURS]
