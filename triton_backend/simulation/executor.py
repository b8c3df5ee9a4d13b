"""An executor that computes nothing and lets the clock move by what the step would take.

Its model counts down: the token after t is t - 1, and 0 ends an answer. So the last token of a prompt says how long
the answer is, the engine does not know it beforehand, and a sequence that is recomputed goes on where it was.
"""

import numpy as np

from builder.artifact.config import KVGeometry, KVGroup, Limits
from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.executor import check_step, likeliest_of
from triton_backend.simulation.cost import CostModel, VirtualClock

END_ID = 0
VOCAB_SIZE = 2**31 - 1


class CountdownExecutor:
    """Answers each row with its token less one, after the seconds of the cost model."""

    def __init__(
        self, limits: Limits, *, block_size: int, cost: CostModel, clock: VirtualClock
    ) -> None:
        self.limits = limits
        group = KVGroup(layers=(0,), num_kv_heads=1, head_dim=1, dtype="float32")
        self.kv = KVGeometry(block_size=block_size, groups=(group,))
        self.vocab_size = VOCAB_SIZE
        self.busy_s = 0.0
        """Time spent in steps."""
        self._cost = cost
        self._clock = clock

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        check_step(step, asks, limits=self.limits, kv=self.kv)
        seconds = self._cost.seconds(step)
        self.busy_s += seconds
        self._clock.wait(seconds)
        ids = np.maximum(step.token_ids[step.logit_rows] - 1, END_ID)
        count = len(ids)
        return StepResult(
            argmax=ids,
            candidate_ids=np.zeros((count, 0), np.int32),
            candidate_logits=np.zeros((count, 0), np.float32),
            logsumexp=np.zeros(count, np.float32),
            full_row=_refuse_row,
            likeliest=likeliest_of(_refuse_row),
        )

    def close(self) -> None:
        """Hold nothing."""


def _refuse_row(row: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    raise AssertionError(f"row {row} was asked for whole; greedy answers need none")
