"""What the core needs of structured output: a mask per answer. Which library makes it is not known here.

An engine without a provider refuses every constraint.
"""

from collections.abc import Collection
from typing import Protocol

from builder.artifact.step import Float32
from triton_backend.constraint import Constraint


class AnswerMask(Protocol):
    """The ids that one answer may go on with. It belongs to one sequence and one thread."""

    def keeps(self, token_id: int) -> bool:
        """Whether the answer may go on with `token_id`."""
        ...

    def apply(self, logits: Float32) -> None:
        """Set to minus infinity, in place, the logit in `[V]` of every id that can't come next.

        An answer that may end here may go on with any id that ends it.
        """
        ...

    def accept(self, token_id: int) -> None:
        """Go on with a token that was drawn under this mask; one that ends the answer changes nothing.

        Raises:
            EngineError: the constraint does not allow it.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether what was accepted is a whole answer that nothing can follow: it ends without a further step."""
        ...


class MaskProvider(Protocol):
    """Compiles constraints for one vocabulary."""

    def start(self, constraint: Constraint, stopping_ids: Collection[int]) -> AnswerMask:
        """Give the mask of an answer that has not begun; `stopping_ids` may end it where it is complete.

        Raises:
            RequestError: the constraint is invalid, asks for something not supported (named), or is too
                large to compile.
        """
        ...
