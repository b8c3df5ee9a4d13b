"""What every worker process does: open one engine, time it, and print one line of JSON.

All engines get the same token ids for the same seed, greedy answers of a fixed length, and the same number of threads.
This module and what it imports need nothing but Python: it runs in the virtual environments of other engines too.
"""

import argparse
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Protocol

from peer_engines.memory import PeakMemory

SIZES = (1, 4, 16, 32)
NUM_PROMPT = NUM_ANSWER = 128
NUM_SHARED, NUM_OWN = 448, 64
KV_TOKENS = 32 * 640
"""Room that each engine gets for keys and values, where it takes such a number."""
MAX_SEQS = 32
MAX_SEQ_LEN = 1024
TOKEN_IDS = range(300, 49_000)

Prompt = list[int]


class PeerEngine(Protocol):
    """An engine that holds a model; a begun prompt that was remembered need not be computed again."""

    def answer(self, prompts: Sequence[Prompt], num_tokens: int) -> int:
        """Answer all prompts at once with `num_tokens` tokens each, and count the tokens that came."""

    def remember(self, shared: Prompt) -> None:
        """Compute the beginning that the next prompt shares with an earlier one."""

    def first_token(self, prompt: Prompt) -> None:
        """Compute a prompt, less what is remembered of it, and one token."""


@dataclass(frozen=True, slots=True)
class Task:
    """What the command line asks of a worker."""

    model: Path
    threads: int
    seed: int
    quick: bool


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def draw(random_ids: random.Random, count: int) -> Prompt:
    """Draw a prompt; none shares a beginning with another."""
    return random_ids.choices(TOKEN_IDS, k=count)


def prompt_figures(engine: PeerEngine, ids: random.Random, runs: int) -> dict[str, float]:
    """Time the first token of prompts of 512, cold and with 448 of them remembered."""
    cold, warm = [], []
    for _ in range(runs):
        prompt = draw(ids, NUM_SHARED + NUM_OWN)
        cold.append(timed(lambda prompt=prompt: engine.first_token(prompt)))  # type: ignore[misc]
    for _ in range(runs):
        shared = draw(ids, NUM_SHARED)
        engine.remember(shared)
        prompt = shared + draw(ids, NUM_OWN)
        warm.append(timed(lambda prompt=prompt: engine.first_token(prompt)))  # type: ignore[misc]
    return {
        "prefill_tps": round((NUM_SHARED + NUM_OWN) / median(cold), 1),
        "ttft_cold_ms": round(1000 * median(cold), 2),
        "ttft_warm_ms": round(1000 * median(warm), 2),
    }


def answer_tps(engine: PeerEngine, ids: random.Random, size: int, num_tokens: int) -> float:
    """Give answer tokens per second of wall time, prompts included."""
    prompts = [draw(ids, NUM_PROMPT) for _ in range(size)]
    start = time.perf_counter()
    came = engine.answer(prompts, num_tokens)
    took = time.perf_counter() - start
    if came != size * num_tokens:
        raise SystemExit(f"{came} tokens came for {size} answers of {num_tokens}")
    return came / took


def measure(open_engine: Callable[[Task], PeerEngine], task: Task) -> dict[str, Any]:
    """Take all figures of one engine."""
    ids, memory = random.Random(task.seed), PeakMemory()  # noqa: S311
    with memory:
        start = time.perf_counter()
        engine = open_engine(task)
        engine.first_token(draw(ids, NUM_OWN))
        report: dict[str, Any] = {"load_s": round(time.perf_counter() - start, 3)}
        # What an engine does once per shape is no part of the figures.
        engine.answer([draw(ids, NUM_PROMPT) for _ in range(2)], 8)
        engine.first_token(draw(ids, NUM_SHARED + NUM_OWN))
        report |= prompt_figures(engine, ids, 3 if task.quick else 7)
        num_tokens = NUM_ANSWER // 4 if task.quick else NUM_ANSWER
        report["decode_tps"] = {
            str(size): round(
                median(answer_tps(engine, ids, size, num_tokens) for _ in range(3 // size or 1)), 1
            )
            for size in SIZES
        }
    return report | {"rss_mb": memory.peak_mb, "own_mb": memory.own_mb}


def run(open_engine: Callable[[Task], PeerEngine]) -> None:
    """Be a worker process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    report = measure(open_engine, Task(**vars(parser.parse_args())))
    print(json.dumps(report), flush=True)
