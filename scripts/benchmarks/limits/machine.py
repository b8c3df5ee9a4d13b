"""Measure the machine: bytes per second by where they lie, and integer and bfloat16 operations per second."""

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

SOURCE = Path(__file__).with_name("read_bandwidth.cpp")
COMPILER = ("g++", "-std=c++20", "-O3", "-march=native", "-pthread")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
INSTRUCTIONS = ("amx_int8", "amx_bf16", "avx512_vnni", "avx512_bf16", "avx_vnni", "avx2")
EDGE = 2048
"""Of square matrices: large enough that their edges do not count."""
SECONDS = 1.0


def read_gbps(num_threads: int, sizes: Sequence[int]) -> list[float]:
    """Give GB/s of reading buffers of some bytes again and again, each the best of many passes."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "read_bandwidth"
        subprocess.run([*COMPILER, str(SOURCE), "-o", str(program)], check=True)
        command = [str(program), str(num_threads), *map(str, sizes)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [float(line) for line in printed.split()]


def cache_bytes() -> dict[str, int]:
    """Give the sizes of this processor's data caches, such as `L2`; a last level may be shared with other machines."""
    sizes = {}
    for cache in sorted(CACHES.glob("index*")):
        if (cache / "type").read_text().strip() != "Instruction":
            size = (cache / "size").read_text().strip()
            sizes["L" + (cache / "level").read_text().strip()] = int(size.removesuffix("K")) * 1024
    return sizes


def level_of(num_bytes: int, num_threads: int, caches: dict[str, int]) -> str:
    """Name the nearest level that holds so many bytes; the first two levels are each core's own."""
    for name, size in caches.items():
        if num_bytes <= size * (num_threads if name in ("L1", "L2") else 1):
            return name
    return "memory"


def instructions() -> list[str]:
    """Give the instruction sets for matrices that this processor has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    flags = next((line for line in lines if line.startswith("flags")), "").split()
    return [name for name in INSTRUCTIONS if name in flags]


def gemm_tops(num_threads: int) -> dict[str, float]:
    """Give 10**12 operations per second of PyTorch's products of large matrices, int8 and bfloat16."""
    torch.set_num_threads(num_threads)
    a, b = torch.randn(2, EDGE, EDGE).unbind()
    a8, b8 = (torch.randint(-127, 128, (EDGE, EDGE), dtype=torch.int8) for _ in range(2))
    a16, b16 = a.bfloat16(), b.bfloat16()
    products: dict[str, list[Callable[[], Any]]] = {
        "int8": [lambda: torch._int_mm(a8, b8), _linear_int8(b8)],
        "bfloat16": [lambda: a16 @ b16],
    }
    return {name: round(max(map(_tops, calls)), 3) for name, calls in products.items()}


def _linear_int8(weight: torch.Tensor) -> Callable[[], Any]:
    """Give a quantized linear layer, whose weights are laid out beforehand."""
    packed = torch.ops.onednn.qlinear_prepack(weight, [EDGE, EDGE])
    rows = torch.randint(0, 128, (EDGE, EDGE), dtype=torch.uint8)
    scales, zeros = torch.ones(EDGE), torch.zeros(EDGE, dtype=torch.int32)
    arguments: tuple[Any, ...] = (
        rows,
        1.0,
        0,
        packed,
        scales,
        zeros,
        None,
        1.0,
        0,
        torch.bfloat16,
        "none",
        [],
        "",
    )
    return lambda: torch.ops.onednn.qlinear_pointwise(*arguments)


def _tops(call: Callable[[], Any]) -> float:
    call()
    times, end = [], time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 2 * EDGE**3 / min(times) / 1e12
