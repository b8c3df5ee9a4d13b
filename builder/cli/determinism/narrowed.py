"""An executor with less room than it has, so that chunks, full pools and queues come about at any size."""

import dataclasses

from builder.artifact.config import Limits
from builder.targets.executor import Executor, LentExecutor


class Narrowed(LentExecutor):
    """Lends out an executor under smaller limits."""

    def __init__(self, executor: Executor, **limits: int) -> None:
        """Lower the given limits; those that are lower already stay."""
        super().__init__(executor)
        lowered = {
            name: min(value, getattr(executor.limits, name)) for name, value in limits.items()
        }
        self._limits = dataclasses.replace(executor.limits, **lowered)

    @property
    def limits(self) -> Limits:
        """What is left of the executor's limits."""
        return self._limits
