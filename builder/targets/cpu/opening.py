"""Open the native engine: map its weights, and say in words why the library refuses, by the kind of reason it gives.

Memory is counted before any is taken: the library knows what an engine takes, this side what the machine has left.
"""

import ctypes
import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.config import Limits
from builder.errors import (
    MAX_SHOWN,
    ArtifactError,
    EngineError,
    ForerunError,
    UnsupportedError,
)
from builder.targets.cpu import native
from builder.targets.cpu.native import Cause
from builder.targets.machine import available_memory_bytes

REFUSALS: dict[Cause, tuple[type[ForerunError], str]] = {
    Cause.PLAN: (
        ArtifactError,
        "the cpu engine refuses its plan: {text}; compile the model again with this version",
    ),
    Cause.LIMITS: (
        ArtifactError,
        "the cpu engine refuses its limits: {text}; compile the model again",
    ),
    Cause.BUILD: (
        UnsupportedError,
        "this machine can't run instructions {build}; it runs {text}",
    ),
    Cause.MEMORY: (
        EngineError,
        (
            "there is too little memory for the cpu engine: {text}; compile with a smaller --kv-cache-bytes or "
            "--max-num-tokens, or use fewer --threads"
        ),
    ),
    Cause.THREADS: (
        EngineError,
        (
            "the cpu engine could not start {threads} threads: {text}; use fewer --threads, or raise the limits of "
            "memory and processes (ulimit -v and -u, or those of the container)"
        ),
    ),
}
"""What each kind of reason is for a user: an error, and its words."""


@dataclass(frozen=True, slots=True)
class OpenEngine:
    """A native engine, and what must live as long as it does."""

    handle: int
    plan: bytes
    weights: NDArray[np.uint8]


def open_engine(
    plan: bytes, weights: Path, limits: Limits, *, num_threads: int, build: str
) -> OpenEngine:
    """Open the engine of a plan; an empty build stands for the best one.

    Raises:
        ArtifactError: the plan or its limits can't be right.
        UnsupportedError: the machine can't run the build.
        EngineError: there is too little memory, or a thread can't be started.
    """
    mapped = np.frombuffer(_mapped(weights), np.uint8)
    error, handle = ctypes.create_string_buffer(native.ERROR_BYTES), ctypes.c_void_p()
    cause = native.library().forerun_open(
        plan,
        len(plan),
        address(mapped),
        len(mapped),
        native.Limits(
            limits.max_num_tokens,
            limits.max_num_seqs,
            limits.max_logit_rows,
            limits.max_seq_len,
            limits.num_blocks,
            num_threads,
            available_memory_bytes(),
        ),
        build.encode(),
        ctypes.byref(handle),
        error,
    )
    if handle.value is None:
        kind, words = REFUSALS[Cause(cause)]
        text = error.value.decode(errors="replace")
        raise kind(words.format(text=text, build=repr(build[:MAX_SHOWN]), threads=num_threads))
    return OpenEngine(handle.value, plan, mapped)


def address(values: NDArray[Any]) -> int:
    """Give where an array's numbers lie."""
    place: int = values.__array_interface__["data"][0]
    return place


def _mapped(path: Path) -> mmap.mmap:
    """Map a file of weights, in huge pages where the system reads files into such.

    Raises:
        EngineError: the system refuses.
    """
    try:
        with path.open("rb") as stream:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise EngineError(
            f"the cpu engine can't map {path}: {error.strerror or error}; are the limits of this process (ulimit -v) too low?"
        ) from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):  # a kernel without huge pages
            mapped.madvise(mmap.MADV_HUGEPAGE)
    return mapped
