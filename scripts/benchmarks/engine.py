"""Time the engine of an artifact: prompts, answers of 1 to 64 sequences, first tokens, load time, memory, where a step goes.

Prompts have 128 tokens and answers 128; random token ids, so no text is needed. `decode_tps` counts answer tokens by
the whole wall clock, prompt time included, through the engine loop; `decode_only_tps` calls the executor alone.
`python_share` is what of a step through the engine loop, with text made of its tokens, is not native.
Usage: scripts/bench engine --artifact DIR [--target NAME] [--threads N] [--quick] [--json FILE|-].
"""

import argparse
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from reporting.failures import exit_with, require_room
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.table import Table

from builder.artifact.step import RowAsks, StepTensors
from builder.artifact.store import Artifact, read_manifest
from builder.errors import UserError
from builder.targets import open_executor
from builder.targets.cpu.execute import CpuExecutor
from builder.targets.executor import Executor
from triton_backend.answers import Answers
from triton_backend.engine import Engine
from triton_backend.request import Request, SamplingParams
from triton_backend.text import TextStage
from triton_backend.text_files import read_tokenizer

SIZES = (1, 4, 16, 32, 64)
NUM_PROMPT = NUM_ANSWER = 128
LONG_PROMPT, SHARED = 512, 448
FIRST_ID = 300
"""Of the random ids: those before it are bytes and control tokens in most vocabularies."""
GREEDY = SamplingParams(temperature=0, max_tokens=NUM_ANSWER, ignore_eos=True)
SAMPLED = replace(GREEDY, temperature=0.8, top_p=0.95)


def check_room(executor: Executor, sizes: Sequence[int], *, num_tokens: int) -> None:
    """Refuse an engine that can't take a long prompt, or the largest of some numbers of sequences.

    Raises:
        UserError: names what is too small.
    """
    limits, block_size = executor.limits, executor.kv.block_size
    require_room(limits, seq_len=LONG_PROMPT, num_seqs=1, block_size=block_size)
    require_room(limits, seq_len=num_tokens, num_seqs=max(sizes), block_size=block_size)
    if executor.vocab_size <= FIRST_ID:
        raise UserError(
            f"the artifact has a vocabulary of {executor.vocab_size}, this benchmark needs more than {FIRST_ID}"
        )


class Driver:
    """Lays out steps of sequences that own fixed blocks."""

    def __init__(self, executor: Executor, num_tokens: int) -> None:
        self.executor = executor
        self._size = executor.kv.block_size
        self._width = -(-num_tokens // self._size)
        self._random = np.random.default_rng(0)

    def run(self, sequences: Sequence[int], past: int, count: int) -> float:
        """Compute `count` tokens after `past` of each sequence, greedy, and give the seconds it took."""
        num = len(sequences)
        places = np.tile(np.arange(past, past + count), num)
        owners = np.repeat(np.array(sequences), count)
        tables = 1 + np.array(sequences)[:, None] * self._width + np.arange(self._width)
        slots = (1 + owners * self._width + places // self._size) * self._size + places % self._size
        step = StepTensors(
            token_ids=self._random.integers(
                FIRST_ID, self.executor.vocab_size, num * count, np.int32
            ),
            positions=places.astype(np.int32),
            query_start=np.arange(0, num * count + 1, count, dtype=np.int32),
            seq_lens=np.full(num, past + count, np.int32),
            block_tables=tables[None].astype(np.int32),
            slot_mapping=slots[None].astype(np.int32),
            logit_rows=np.arange(count - 1, num * count, count, dtype=np.int32),
            block_copies=np.zeros((0, 3), np.int32),
        )
        start = time.perf_counter()
        self.executor.execute(step, RowAsks(0, np.zeros(num, np.float32)))
        return time.perf_counter() - start

    def fill(self, sequences: Sequence[int], num_tokens: int) -> None:
        """Compute a prompt for each sequence, as many at once as a step allows."""
        together = max(1, self.executor.limits.max_num_tokens // num_tokens)
        for first in range(0, len(sequences), together):
            self.run(sequences[first : first + together], 0, num_tokens)


def prompt_figures(executor: Executor, rounds: int) -> dict[str, float]:
    """Time prompts of 512 tokens, cold and with 448 of them computed."""
    driver = Driver(executor, LONG_PROMPT)
    chunk = min(LONG_PROMPT, executor.limits.max_num_tokens)

    def cold() -> float:
        return sum(
            driver.run([0], past, min(chunk, LONG_PROMPT - past))
            for past in range(0, LONG_PROMPT, chunk)
        )

    cold()
    cold_s = median(cold() for _ in range(rounds))
    warm_s = median(driver.run([0], SHARED, LONG_PROMPT - SHARED) for _ in range(rounds))
    return {
        "prefill_tps": round(LONG_PROMPT / cold_s, 1),
        "ttft_cold_ms": round(1000 * cold_s, 2),
        "ttft_warm_ms": round(1000 * warm_s, 2),
    }


def steps_alone(executor: Executor, num_sequences: int, num_steps: int) -> float:
    """Give tokens per second of steps in which each sequence gets one token, called without an engine loop."""
    driver = Driver(executor, NUM_PROMPT + NUM_ANSWER)
    driver.fill(range(num_sequences), NUM_PROMPT)
    times = [driver.run(range(num_sequences), NUM_PROMPT + i, 1) for i in range(num_steps)]
    return num_sequences / median(times)


def submit(engine: Engine, num_sequences: int, params: SamplingParams, *, vocab_size: int) -> None:
    """Submit random prompts, the same for the same number of them."""
    random = np.random.default_rng(num_sequences)
    for index in range(num_sequences):
        prompt = tuple(random.integers(FIRST_ID, vocab_size, NUM_PROMPT).tolist())
        engine.submit(Request(str(index), prompt, replace(params, seed=index)))


def answers(executor: Executor, num_sequences: int, params: SamplingParams) -> float:
    """Give answer tokens per second of requests that come all at once, through the engine loop."""
    engine = Engine(executor, end_token_ids=())
    assert params.max_tokens is not None
    start = time.perf_counter()
    submit(engine, num_sequences, params, vocab_size=executor.vocab_size)
    while engine.has_work:
        engine.step()
    return num_sequences * params.max_tokens / (time.perf_counter() - start)


def step_split(executor: Executor, num_sequences: int, num_steps: int) -> dict[str, float]:
    """Give milliseconds of a step by kind of operation; `python` is what the native call does not account for."""
    if not isinstance(executor, CpuExecutor):
        return {}
    driver = Driver(executor, NUM_PROMPT + NUM_ANSWER)
    driver.fill(range(num_sequences), NUM_PROMPT)
    before = executor.times_ns()
    total = sum(driver.run(range(num_sequences), NUM_PROMPT + i, 1) for i in range(num_steps))
    spent = {name: time_ns - before[name] for name, time_ns in executor.times_ns().items()}
    spent["python"] = round(total * 1e9) - sum(spent.values())
    return {name: round(time_ns / 1e6 / num_steps, 3) for name, time_ns in spent.items()}


def python_shares(
    executor: Executor, text_stage: TextStage, sizes: Sequence[int]
) -> dict[str, dict[str, float]]:
    """Give the part of a step's time, text included, that the native library does not account for."""
    if not isinstance(executor, CpuExecutor):
        return {}
    named = {"greedy": GREEDY, "sampled": SAMPLED}
    return {
        name: {str(size): python_share(executor, text_stage, size, params) for size in sizes}
        for name, params in named.items()
    }


def python_share(
    executor: CpuExecutor, text_stage: TextStage, num_sequences: int, params: SamplingParams
) -> float:
    """Give that part for steps in which each of some answers gets a token; prompts are computed before."""
    engine = Engine(executor, end_token_ids=(), text_stage=text_stage)
    submit(engine, num_sequences, params, vocab_size=executor.vocab_size)
    begun: set[str] = set()
    while len(begun) < num_sequences:
        begun |= {delta.request_id for delta in engine.step()}
    native, start = sum(executor.times_ns().values()), time.perf_counter_ns()
    for _ in range(NUM_ANSWER // 2):
        engine.step()
    total = time.perf_counter_ns() - start
    native = sum(executor.times_ns().values()) - native
    for index in range(num_sequences):
        engine.cancel(str(index))
    return round(1 - native / total, 4)


def resident_mb() -> dict[str, float]:
    """Give peak resident memory, and what is resident now without clean pages of files."""
    now = psutil.Process().memory_full_info()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak": round(peak, 1), "own": round((now.rss - now.shared) / 2**20, 1)}


def measure(options: argparse.Namespace) -> Iterator[tuple[str, Any]]:
    """Give all figures by name, in the order they are taken."""
    artifact = Artifact(options.artifact, read_manifest(options.artifact))
    start = time.perf_counter()
    executor = open_executor(artifact, target=options.target, threads=options.threads)
    sizes = [size for size in SIZES if size <= executor.limits.max_num_seqs]
    check_room(executor, sizes, num_tokens=NUM_PROMPT + NUM_ANSWER)
    Driver(executor, NUM_PROMPT).run([0], 0, 1)
    yield "load_s", round(time.perf_counter() - start, 3)
    rounds, num_steps = (5, 16) if options.quick else (15, NUM_ANSWER - 1)
    yield from prompt_figures(executor, rounds).items()
    runs = 1 if options.quick else 3
    sampled_sizes = sizes[-2:-1] if options.quick else sizes
    for name, params, asked in (
        ("decode_tps", GREEDY, sizes),
        ("decode_sampled_tps", SAMPLED, sampled_sizes),
    ):
        yield (
            name,
            {
                str(size): round(median(answers(executor, size, params) for _ in range(runs)), 1)
                for size in asked
            },
        )
    yield (
        "decode_only_tps",
        {str(size): round(steps_alone(executor, size, num_steps), 1) for size in sizes},
    )
    yield "step_ms", {str(size): step_split(executor, size, num_steps) for size in sizes}
    record = artifact.manifest.tokenizer
    text_stage = Answers(read_tokenizer(artifact.root, record), record.end_token_ids)
    yield "python_share", python_shares(executor, text_stage, sampled_sizes)
    yield "rss_mb", resident_mb()
    executor.close()


def table_of(report: dict[str, Any]) -> Table:
    """Lay out the figures."""
    table = Table("figure", "value")
    for name, value in report.items():
        inner = value.items() if isinstance(value, dict) else [("", value)]
        for key, number in inner:
            table.add_row(f"{name} {key}".strip(), str(number))
    return table


def main() -> None:
    """Measure one artifact, and print JSON or a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, metavar="DIR")
    parser.add_argument("--target", help="which engine of the artifact; default: its first")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, below 40 s")
    add_json_option(parser)
    options = parser.parse_args()
    report = dict(measure(options))
    if told_as_json(report, options.json):
        return
    Console().print(table_of(report))


if __name__ == "__main__":
    exit_with(main)
