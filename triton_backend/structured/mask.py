"""What the core needs of structured output: a mask per answer. Which library makes it is not known here.

An engine without a provider refuses every constraint.
"""

from collections.abc import Collection
from typing import Protocol

from builder.artifact.step import Float32
from triton_backend.constraint import Constraint


class AnswerMask(Protocol):
    """The ids that one answer may go on with. It belongs to one sequence and one thread."""

    def begin(self) -> None:
        """Start to find out what may come next, beside what else the caller does until it asks."""
        ...

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
            RequestError: the constraint became too complex to follow; `apply` allowed everything then.
            EngineError: the constraint does not allow it.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether what was accepted is a whole answer that nothing can follow: it ends without a further step."""
        ...


class CompiledConstraint(Protocol):
    """A constraint that is ready to be followed. It never changes, and any thread may have it."""

    def start(self, stopping_ids: Collection[int]) -> AnswerMask:
        """Give the mask of an answer that has not begun; `stopping_ids` may end it where it is complete."""
        ...


class MaskProvider(Protocol):
    """Compiles constraints for one vocabulary; threads may share it."""

    def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Compile a constraint, which may take a second: better not on the engine's thread.

        Raises:
            UnavailableError: this machine is too busy to compile it; it may be tried again.
            RequestError: the constraint is invalid, asks for something not supported (named), or is too
                large to compile.
        """
        ...
