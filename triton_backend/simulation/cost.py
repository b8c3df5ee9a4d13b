"""How long a step takes, as a straight line in what it computes, and the clock that it moves.

A step costs a fixed time (weights are read once whatever the batch), a time per token, and a time per token that
another attends to. Times are seconds.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from builder.artifact.step import StepTensors
from builder.errors import UserError
from triton_backend.field_checks import shown
from triton_backend.simulation.typed import of_json

MIN_STEP_S = 1e-6
MAX_FILE_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class CostModel:
    """Seconds of a step: `step_s + token_s * tokens + context_s * context`.

    A token at position p has a context of p + 1 tokens. The defaults are of the order of a model of 135 million
    parameters (int8) on two cores of a server; `measure_cost` finds those of an engine at hand.

    Raises:
        UserError: a time is below zero or no number, or a step would take less than a microsecond.
    """

    step_s: float = 0.002
    token_s: float = 2e-4
    context_s: float = 1e-7

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"cost {name} must be a number of seconds")
            if not 0 <= value < 1e6:
                raise UserError(
                    f"cost {name} must be from 0 to below 1e6 seconds; got {shown(value)}"
                )
        if self.step_s + self.token_s < MIN_STEP_S:
            raise UserError(
                f"a step must take time: cost step_s and token_s must be {MIN_STEP_S:g} s together at least"
            )

    def seconds(self, step: StepTensors) -> float:
        """Give the seconds that a step takes."""
        return self.step_s + self.token_s * step.num_tokens + self.context_s * context_of(step)


def context_of(step: StepTensors) -> int:
    """Count the tokens that the tokens of a step attend to, each for itself."""
    return int(step.positions.sum(dtype=np.int64)) + step.num_tokens


class VirtualClock:
    """Time that passes only when told to; called, it gives the seconds since the start."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Give the time."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds

    def wait_until(self, moment_s: float) -> None:
        """Let time pass up to a moment; none if it is over already."""
        self.now_s = max(self.now_s, moment_s)


def read_cost(path: Path) -> CostModel:
    """Read a cost model from a JSON object with `step_s`, `token_s` and `context_s`.

    Raises:
        UserError: the file is missing or is no such object.
    """
    known = set(CostModel.__dataclass_fields__)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_FILE_BYTES)
    except OSError as error:
        raise UserError(f"{path} can't be read: {error}") from error
    content = of_json(str(path), text, dict[str, float])
    if set(content) - known:
        raise UserError(
            f"{path} must be one JSON object with the fields {', '.join(sorted(known))}"
        )
    return CostModel(**content)


def fit_cost(measured: Sequence[tuple[int, int, float]]) -> CostModel:
    """Fit a cost model to measured steps: (tokens, context, seconds) of each; no time becomes negative.

    Steps weigh by the inverse of their time, so that short steps are met as well as long ones.
    """
    rows = np.array([(1.0, tokens, context) for tokens, context, _ in measured])
    times = np.array([seconds for _, _, seconds in measured])
    rows, wanted = rows / times[:, None], np.ones(len(times))
    kept = [0, 1, 2]
    found = np.zeros(3)
    while kept:
        solution = np.linalg.lstsq(rows[:, kept], wanted, rcond=None)[0]
        if solution.min() >= 0:
            found[kept] = solution
            break
        del kept[int(solution.argmin())]
    return CostModel(*map(float, found))
