"""Time what the engine loop adds to a step: scheduler, packer, sampler and commit, without the executor.

Aim: below 300 us at 16 sequences, greedy or sampled. The other lines turn one link of the sampling chain on.
Usage: scripts/bench loop [--json FILE|-].
"""

import argparse
import time
from statistics import fmean, median
from typing import Any

import numpy as np
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.table import Table

from builder.artifact.config import KVGeometry, KVGroup, Limits
from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.targets.executor import result_from_rows
from triton_backend.constraint import Constraint, ConstraintKind
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams
from triton_backend.structured.guidance import GuidanceProvider

NUM_SEQUENCES = (1, 16, 64)
NUM_SEQUENCES_OF_LINKS = (16, 32)
VOCAB = 49_152
NUM_PROMPT = 64
NUM_STEPS = 400
NUM_STEPS_OF_LINKS = 40
AIM_US = 300
LONG = '{"type": "string", "minLength": 20000}'  # so that no answer ends
LINKS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 40},
    "min_p": {"min_p": 0.05},
    "logit_bias": {"logit_bias": ((5, 1.0),)},
    "bad_words": {"bad_words": ((5, 6), (7,))},
    "min_tokens": {"min_tokens": 2 * NUM_STEPS, "stop_token_ids": (5,)},
    "penalties": {"repetition_penalty": 1.1, "frequency_penalty": 0.1},
    "json": {"constraint": Constraint(ConstraintKind.JSON_SCHEMA, LONG)},
}
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 2 * NUM_STEPS}
SAMPLED: dict[str, Any] = {"temperature": 0.8, "seed": 1, "max_tokens": 2 * NUM_STEPS}
PLAIN = {
    "greedy": SamplingParams(**GREEDY),
    "sampled": SamplingParams(**SAMPLED, top_p=0.95),
}
LINKED = {
    **{f"sampled, {name}": SamplingParams(**SAMPLED, **link) for name, link in LINKS.items()},
    **{
        f"greedy, {name}": SamplingParams(**GREEDY, **LINKS[name])
        for name in ("logit_bias", "bad_words", "min_tokens", "penalties", "json")
    },
}

MASKS = GuidanceProvider(
    # Two characters of a word, 49,152 of them; and each alone.
    [
        bytes([64 + index % 62, 33 + index // 62 % 94]) if index > 255 else bytes([index])
        for index in range(VOCAB)
    ],
    lambda text: list(text.encode()),
)


class CannedExecutor:
    """Answers every step from rows made beforehand, and adds up the time it takes."""

    def __init__(self, num_sequences: int) -> None:
        self.limits = Limits(
            max_seq_len=NUM_PROMPT + 2 * NUM_STEPS,
            max_num_seqs=num_sequences,
            max_num_tokens=NUM_PROMPT * num_sequences,
            max_logit_rows=num_sequences,
            num_blocks=1 + num_sequences * (1 + (NUM_PROMPT + 2 * NUM_STEPS) // 16),
        )
        group = KVGroup(layers=(0,), num_kv_heads=1, head_dim=64, dtype="float32")
        self.kv = KVGeometry(block_size=16, groups=(group,))
        self.vocab_size = VOCAB
        # The frequencies of words, steep as a language model's: the likeliest of 49,152 holds a third.
        random = np.random.default_rng(0)
        falling = -1.3 * np.log(np.arange(1, VOCAB + 1))
        rows = [random.permutation(falling) for _ in range(num_sequences)]
        self._rows = np.array(rows, np.float32)
        self._answers: dict[tuple[int, int], StepResult] = {}
        self.spent_ns = 0

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        start = time.perf_counter_ns()
        key = (len(step.logit_rows), asks.num_candidates)
        if key not in self._answers:
            self._answers[key] = result_from_rows(self._rows[: key[0]], asks)
        self.spent_ns += time.perf_counter_ns() - start
        return self._answers[key]

    def close(self) -> None:
        """Hold nothing."""


def measure(executor: CannedExecutor, params: SamplingParams, num_steps: int) -> dict[str, float]:
    """Return microseconds of a step in which every sequence gets a token: the twentieth, median and mean.

    The twentieth is what a step costs when nobody else wants the core. The mean is above the median where
    draws fall beyond the candidates and search a whole row.
    """
    num_sequences = executor.limits.max_num_seqs
    engine = Engine(executor, end_token_ids=(), mask_provider=MASKS)
    for index in range(num_sequences):
        engine.submit(Request(f"r{index}", tuple(range(NUM_PROMPT)), params))
    engine.step()
    times = []
    for _ in range(num_steps):
        start, executor.spent_ns = time.perf_counter_ns(), 0
        deltas = engine.step()
        times.append((time.perf_counter_ns() - start - executor.spent_ns) / 1000)
        assert len(deltas) == num_sequences
    least = sorted(times)[num_steps // 20]
    return {
        name: round(us, 1)
        for name, us in (("least", least), ("median", median(times)), ("mean", fmean(times)))
    }


def main() -> None:
    """Measure every size, greedy and sampled, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    options = parser.parse_args()
    executors = {
        size: CannedExecutor(size) for size in sorted({*NUM_SEQUENCES, *NUM_SEQUENCES_OF_LINKS})
    }
    parts = (
        (PLAIN, NUM_SEQUENCES, NUM_STEPS),
        (LINKED, NUM_SEQUENCES_OF_LINKS, NUM_STEPS_OF_LINKS),
    )
    figures = {
        name: {str(size): measure(executors[size], params, num_steps) for size in sizes}
        for group, sizes, num_steps in parts
        for name, params in group.items()
    }
    if told_as_json({"loop_us_per_step": figures, "aim_us_at_16": AIM_US}, options.json):
        return
    table = Table("us per step: least, median (mean)", *map(str, executors))
    for name, by_size in figures.items():
        cells = (by_size.get(str(size)) for size in executors)
        table.add_row(
            name,
            *(
                f"{cell['least']:.0f}, {cell['median']:.0f} ({cell['mean']:.0f})" if cell else ""
                for cell in cells
            ),
        )
    Console().print(table)


if __name__ == "__main__":
    exit_with(main)
