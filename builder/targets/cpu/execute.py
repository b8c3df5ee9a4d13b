"""Run the native CPU engine: weights mapped from the artifact, one native call per step.

The library checks the plan before it uses anything of it, and every step before it writes anything.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from builder.artifact.config import KVGeometry, Limits
from builder.artifact.manifest import EngineRecord
from builder.artifact.step import Float32, Int32, RowAsks, StepResult, StepTensors
from builder.artifact.store import Artifact
from builder.errors import EngineError
from builder.targets.cpu import native
from builder.targets.cpu.fit import checked_files
from builder.targets.cpu.opening import address, open_engine
from builder.targets.executor import check_step
from builder.targets.machine import usable_threads
from builder.targets.turn import Turn

NAME = "cpu"
OPERATIONS = (
    "embedding",
    "rms_norm",
    "linear",
    "append",
    "attention",
    "row_answers",
    "quantize",
    "layer_norm",
)
"""Kinds of operations in the order of their codes, from 1."""


def open_executor(artifact: Artifact, *, threads: int | None = None) -> "CpuExecutor":
    """Load the engine of rank 0.

    Raises:
        UnsupportedError: the native library is missing.
        ArtifactError: there is no such engine, or it does not fit its manifest or this version.
        EngineError: there is too little memory, or a thread can't be started.
        UserError: the number of threads is out of range.
    """
    return CpuExecutor(artifact, artifact.engine(NAME), num_threads=usable_threads(threads))


class CpuExecutor:
    """A native engine and the mapped file of its weights."""

    def __init__(
        self, artifact: Artifact, record: EngineRecord, *, num_threads: int, build: str = ""
    ) -> None:
        manifest = artifact.manifest
        self.limits: Limits = manifest.limits
        self.kv: KVGeometry = manifest.kv
        self.vocab_size: int = manifest.model.vocab_size
        self._library = native.library()
        self._turn = Turn()
        self._num_rows = 0
        plan, weights = checked_files(artifact, record)
        self._opened = open_engine(plan, weights, self.limits, num_threads=num_threads, build=build)
        self._handle: int | None = self._opened.handle

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """Run one step; see `Executor.execute`.

        Raises:
            EngineError: the engine is closed or at work for another thread, or the step is beyond its limits.
        """
        with self._turn:
            return self._run(step, asks)

    def close(self) -> None:
        """Free the engine, its pool and its threads; a step that another thread runs ends before."""
        with self._turn.lock:
            if self._handle is not None:
                self._library.forerun_close(self._handle)
                self._handle = None

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def times_ns(self) -> dict[str, int]:
        """Give the time spent in each kind of operation since the engine was opened."""
        with self._turn:
            assert self._handle is not None
            times = self._library.forerun_times_ns(self._handle)
            return {name: times[code] for code, name in enumerate(OPERATIONS, start=1)}

    def _run(self, step: StepTensors, asks: RowAsks) -> StepResult:
        if self._handle is None:
            raise EngineError("the engine is closed")
        check_step(step, asks, limits=self.limits, kv=self.kv)
        rows, count = len(step.logit_rows), min(asks.num_candidates, self.vocab_size)
        argmax = np.empty(rows, np.int32)
        ids = np.empty((rows, count), np.int32)
        logits = np.empty((rows, count), np.float32)
        sums = np.empty(rows, np.float32)
        outputs = native.Outputs(*map(address, (argmax, ids, logits, sums)))
        arrays = _arrays(step, asks)
        sizes = (step.num_tokens, step.num_seqs, step.block_tables.shape[2], rows, count)
        inputs = native.Inputs(*sizes, *map(address, arrays))
        copies = np.ascontiguousarray(step.block_copies, np.int32)
        error = ctypes.create_string_buffer(native.ERROR_BYTES)
        failed = self._library.forerun_run(
            self._handle, inputs, outputs, address(copies), len(copies), error
        )
        if failed:
            raise EngineError(f"the cpu engine refused a step: {error.value.decode()}")
        self._num_rows = rows
        return StepResult(argmax, ids, logits, sums, self._full_row, self._likeliest)

    def _likeliest(self, rows: Sequence[int], num_candidates: int) -> tuple[Int32, Float32]:
        with self._turn:
            self._check_rows(rows)
            places = np.array(rows, np.int32)
            ids = np.empty((len(rows), min(num_candidates, self.vocab_size)), np.int32)
            logits = np.empty(ids.shape, np.float32)
            sizes = (len(rows), ids.shape[1])
            self._library.forerun_rank(
                self._handle, address(places), *sizes, address(ids), address(logits)
            )
            return ids, logits

    def _check_rows(self, rows: Sequence[int]) -> None:
        if self._handle is None:
            raise EngineError("the engine is closed")
        if wrong := [row for row in rows if not 0 <= row < self._num_rows]:
            raise EngineError(f"row {wrong[0]} is none of the {self._num_rows} of the last step")

    def _full_row(self, row: int) -> Float32:
        with self._turn:
            self._check_rows([row])
            pointer = self._library.forerun_logits(self._handle, row)
            return np.ctypeslib.as_array(pointer, (self.vocab_size,)).copy()


def _arrays(step: StepTensors, asks: RowAsks) -> tuple[NDArray[Any], ...]:
    """Give a step's arrays in the order of `native.Inputs`."""
    integers = (
        step.token_ids,
        step.positions,
        step.query_start,
        step.seq_lens,
        step.block_tables[0],
        step.slot_mapping[0],
        step.logit_rows,
    )
    return (
        *(np.ascontiguousarray(values, np.int32) for values in integers),
        np.ascontiguousarray(asks.temperatures, np.float32),
    )
