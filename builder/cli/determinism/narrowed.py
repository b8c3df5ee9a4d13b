"""An executor with less room than it has, so that chunks, full pools and queues come about at any size."""

import dataclasses

from builder.artifact.config import KVGeometry, Limits
from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.executor import Executor


class Narrowed:
    """Lends out an executor under smaller limits. It owns nothing: closing it is the owner's to do."""

    def __init__(self, executor: Executor, **limits: int) -> None:
        """Lower the given limits; those that are lower already stay."""
        lowered = {
            name: min(value, getattr(executor.limits, name)) for name, value in limits.items()
        }
        self._executor = executor
        self._limits = dataclasses.replace(executor.limits, **lowered)

    @property
    def limits(self) -> Limits:
        """What is left of the executor's limits."""
        return self._limits

    @property
    def kv(self) -> KVGeometry:
        """The executor's own."""
        return self._executor.kv

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._executor.vocab_size

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """Run a step on the executor."""
        return self._executor.execute(step, asks)

    def close(self) -> None:
        """Leave the executor open."""
