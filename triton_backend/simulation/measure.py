"""Measures what steps of a real engine take, and fits a cost model to them."""

from collections.abc import Callable
from random import Random

from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.executor import Executor, LentExecutor
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams
from triton_backend.simulation.cost import CostModel, context_of, fit_cost

NUM_ANSWER = 8
WARM_UP = 2
"""Steps at first that nobody counts: threads start and memory is touched for the first time."""


class TimedExecutor(LentExecutor):
    """Lends an executor to an engine, and writes down (tokens, context, seconds) of each step."""

    def __init__(self, executor: Executor, clock: Callable[[], float]) -> None:
        super().__init__(executor)
        self.measured: list[tuple[int, int, float]] = []
        self._clock = clock

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        started = self._clock()
        result = super().execute(step, asks)
        self.measured.append((step.num_tokens, context_of(step), self._clock() - started))
        return result


def measure_cost(
    executor: Executor, *, clock: Callable[[], float], on_batch: Callable[[int], object]
) -> CostModel:
    """Run small and large batches with short and long prompts, and fit a cost model to their steps.

    `on_batch` hears of each of the `num_batches(executor.limits)` batches.
    """
    timed = TimedExecutor(executor, clock)
    for number, (size, num_prompt) in enumerate(_batches(executor)):
        _run_batch(timed, size=size, num_prompt=num_prompt, seed=number)
        on_batch(1)
    return fit_cost(timed.measured[WARM_UP:])


def num_batches(executor: Executor) -> int:
    """Count the batches that measuring takes."""
    return len(_batches(executor))


def _batches(executor: Executor) -> list[tuple[int, int]]:
    """Give (sequences, prompt tokens) of each batch: all that fit limits and pool."""
    limits, block_size = executor.limits, executor.kv.block_size
    sizes = sorted({1, max(1, limits.max_num_seqs // 4), limits.max_num_seqs})
    longest = max(1, limits.max_seq_len - NUM_ANSWER)
    budget = limits.max_num_tokens
    lengths = sorted({min(longest, length) for length in (8, budget // 4, budget, 2 * budget)})
    return [
        (size, length)
        for size in sizes
        for length in lengths
        if size * length <= 2 * budget
        and size * -(-(length + NUM_ANSWER) // block_size) < limits.num_blocks
    ]


def _run_batch(timed: TimedExecutor, *, size: int, num_prompt: int, seed: int) -> None:
    """Serve requests of random ids together until all are answered."""
    random = Random(seed)  # noqa: S311 - nothing secret is drawn
    engine = Engine(timed, end_token_ids=())
    params = SamplingParams(temperature=0, max_tokens=NUM_ANSWER)
    for index in range(size):
        prompt = tuple(random.randrange(timed.vocab_size) for _ in range(num_prompt))
        engine.submit(Request(str(index), prompt, params, domain=None))
    while engine.has_work:
        engine.step()
