"""Hold the engine of an artifact against what this machine could do at best: bytes per second, operations per second.

A step can't be faster than reading its weights, keys and values once, nor than its operations at the measured peak (int8
for linear layers of integer weights, bfloat16 for the rest). Limits and figures are taken in turns: neighbours slow both.
Usage: scripts/bench roofline --artifact DIR [--threads N] [--rounds N] [--json FILE|-].
"""

import argparse
from pathlib import Path
from statistics import median
from typing import Any

from engine import LONG_PROMPT, NUM_ANSWER, NUM_PROMPT, check_room, prompt_figures, steps_alone
from limits.machine import cache_bytes, gemm_tops, instructions, level_of, read_gbps
from limits.work import Work, decode_work, prompt_work, weight_bytes
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json
from rich.console import Console
from rich.progress import track
from rich.table import Table

from builder.artifact.store import Artifact, read_manifest
from builder.targets import open_executor
from builder.targets.executor import Executor

SIZES = (1, 4, 16, 32)
NUM_STEPS = 32
CONTEXT = NUM_PROMPT + NUM_STEPS // 2
"""Tokens before the new one, in the middle of what is timed."""
BEYOND_CACHES = 1 << 30
PROMPT = "prompt"


def measure_machine(num_threads: int, sizes: list[int]) -> dict[str, Any]:
    """Measure the limits once."""
    return {
        "read_gbps": dict(zip(map(str, sizes), read_gbps(num_threads, sizes), strict=True)),
        "tops": gemm_tops(num_threads),
    }


def sizes_of(executor: Executor) -> list[int]:
    """Give the numbers of sequences that the engine takes."""
    return [size for size in SIZES if size <= executor.limits.max_num_seqs]


def measure_engine(executor: Executor) -> dict[str, float]:
    """Measure tokens per second: prompts, and steps of 1 to 32 sequences."""
    found = {str(size): steps_alone(executor, size, NUM_STEPS) for size in sizes_of(executor)}
    return {PROMPT: prompt_figures(executor, rounds=3)["prefill_tps"]} | found


def medians(rounds: list[Any]) -> Any:
    """Give medians of numbers, through dictionaries of any depth."""
    if isinstance(rounds[0], dict):
        return {key: medians([found[key] for found in rounds]) for key in rounds[0]}
    return round(median(rounds), 3)


def share(work: Work, num_tokens: int, tps: float, machine: dict[str, Any]) -> dict[str, Any]:
    """Hold one figure against its limit."""
    gbps = machine["read_gbps"][str(work.weight_bytes)]
    tops = machine["tops"]
    kind = "int8" if machine["has_integer_weights"] else "bfloat16"
    limit_s, bound = work.seconds(gbps, tops[kind], tops["bfloat16"])
    limit_tps = num_tokens / limit_s
    return {
        "tps": round(tps, 1),
        "limit_tps": round(limit_tps, 1),
        "bound": bound,
        "share": round(tps / limit_tps, 3),
    }


def measure(artifact: Artifact, num_threads: int, num_rounds: int) -> dict[str, Any]:
    """Measure machine and engine in turns, and give shares by batch size."""
    executor = open_executor(artifact, threads=num_threads)
    check_room(executor, sizes_of(executor), num_tokens=NUM_PROMPT + NUM_ANSWER)
    weights, caches = weight_bytes(artifact), cache_bytes()
    sizes = [caches.get("L2", 1 << 20) * num_threads // 2, weights, BEYOND_CACHES]
    limits, figures = [], []
    for _ in track(range(num_rounds), "rounds", console=Console(stderr=True)):
        limits.append(measure_machine(num_threads, sizes))
        figures.append(measure_engine(executor))
    executor.close()
    machine = medians(limits) | {
        "levels": {str(size): level_of(size, num_threads, caches) for size in sizes},
        "instructions": instructions(),
        "has_integer_weights": "int" in artifact.manifest.engines[0].requested,
    }
    shares = {}
    for name, tps in medians(figures).items():
        num_tokens = LONG_PROMPT if name == PROMPT else int(name)
        is_prompt = name == PROMPT
        work = (
            prompt_work(artifact, LONG_PROMPT)
            if is_prompt
            else decode_work(artifact, num_tokens, CONTEXT)
        )
        shares[name] = share(work, num_tokens, tps, machine)
    return {"threads": num_threads, "machine": machine, "shares": shares}


def show(report: dict[str, Any], console: Console) -> None:
    """Print what the machine can do, and our shares."""
    machine = report["machine"]
    for size, gbps in machine["read_gbps"].items():
        console.print(
            f"read {int(size) / 1e6:.0f} MB again and again ({machine['levels'][size]}): {gbps} GB/s"
        )
    peaks = ", ".join(f"{name} {tops}" for name, tops in machine["tops"].items())
    console.print(f"products of large matrices, 10**12 operations/s: {peaks}")
    console.print(f"instruction sets for them: {', '.join(machine['instructions'])}")
    table = Table("sequences", "tok/s", "limit", "bound by", "share")
    for name, row in report["shares"].items():
        table.add_row(
            name, str(row["tps"]), str(row["limit_tps"]), row["bound"], f"{row['share']:.0%}"
        )
    console.print(table)


def main() -> None:
    """Measure, and print a table or JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, metavar="DIR")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    add_json_option(parser)
    options = parser.parse_args()
    artifact = Artifact(options.artifact, read_manifest(options.artifact))
    report = measure(artifact, options.threads, options.rounds)
    if told_as_json(report, options.json):
        return
    show(report, Console())


if __name__ == "__main__":
    exit_with(main)
