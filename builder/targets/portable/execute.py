"""Run the portable engine: ONNX Runtime over pools bound in place.

A step runs as one or more calls, each over pieces of sequences of like size, because attention pads queries and
positions to the longest in a call, and holds a score for each pair of them. How a step is cut changes no bit.
ONNX Runtime maps the weights from the artifact; pools are bound once and updated in place.
"""

import os
from typing import Any

import numpy as np

# onnxruntime records events on disk and sends them home unless this is set before it is imported; no result
# depends on it.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # noqa: TID251
import onnxruntime as ort

from builder.artifact.config import KVGeometry, Limits
from builder.artifact.manifest import EngineRecord
from builder.artifact.step import Float32, RowAsks, StepResult, StepTensors
from builder.artifact.store import Artifact
from builder.errors import ArtifactError, EngineError
from builder.targets.executor import check_step, result_from_rows
from builder.targets.machine import usable_threads
from builder.targets.portable.parts import Int64, parts
from builder.targets.turn import Turn

NAME = "portable"
WEIGHTS_ROOT = "session.model_external_initializers_file_folder_path"
"""ONNX Runtime's name for the folder that weight paths are relative to. It maps the file and keeps only its own
packed copy: 704 MB resident for SmolLM2 in float32, against 1,221 MB with initializers handed in from Python."""
NO_QUANTIZED_REWRITES = "session.disable_quant_qdq"
"""Then ONNX Runtime computes a DequantizeLinear of a weight once, when the session is opened, instead of at every step. Not
for speed alone: a Gemm whose weight is computed at every step multiplies a single row by another routine, in other bits."""
MAX_SCORES = 1 << 26
"""Attention scores of one layer in one call: 256 MiB, of which ONNX Runtime holds about three at a time."""
OUT_OF_MEMORY = ("bad_alloc", "Cannot allocate memory", "Failed to allocate memory")
"""How ONNX Runtime says in a message of any kind that there is no memory."""


def open_executor(artifact: Artifact, *, threads: int | None = None) -> "PortableExecutor":
    """Load the engine of rank 0.

    Raises:
        EngineError: memory ran out.
        ArtifactError: there is no such engine, or ONNX Runtime refuses it.
        UserError: the number of threads is out of range.
    """
    return PortableExecutor(artifact, artifact.engine(NAME), usable_threads(threads))


class PortableExecutor:
    """An ONNX Runtime session and the KV pools it works on."""

    def __init__(self, artifact: Artifact, record: EngineRecord, num_threads: int) -> None:
        manifest = artifact.manifest
        self.limits: Limits = manifest.limits
        self.kv: KVGeometry = manifest.kv
        self.vocab_size: int = manifest.model.vocab_size
        self._turn = Turn()
        self._session: ort.InferenceSession | None = _session(artifact, record, num_threads)
        _check_fit(self._session, self.kv, self.vocab_size)
        self._max_area = max(1, MAX_SCORES // manifest.model.num_heads)
        self._pools = self._allocate_pools()
        self._binding = self._bind_pools()

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """Run one step; see `Executor.execute`.

        Raises:
            EngineError: the engine is closed, at work for another thread, or failed, or the step is beyond its limits.
        """
        with self._turn:
            return self._run_parts(step, asks)

    def close(self) -> None:
        """Free session and pools; a step that another thread runs ends before."""
        with self._turn.lock:
            self._session, self._binding, self._pools = None, None, []

    def _run_parts(self, step: StepTensors, asks: RowAsks) -> StepResult:
        if self._session is None:
            raise EngineError("the engine is closed")
        check_step(step, asks, limits=self.limits, kv=self.kv)
        for _, source, destination in step.block_copies:
            for pool in self._pools:
                pool[destination] = pool[source]
        rows = np.empty((len(step.logit_rows), self.vocab_size), np.float32)
        try:
            for part, wanted in parts(step, block_size=self.kv.block_size, max_area=self._max_area):
                self._run(part, rows, wanted)
        except (ort.capi.onnxruntime_pybind11_state.Fail, RuntimeError) as error:
            # Its own message may quote token ids.
            raise EngineError(
                f"ONNX Runtime failed in a step of {step.num_tokens} tokens ({type(error).__name__}); "
                "there may be too little memory: compile with a smaller --max-num-tokens or --max-seq-len"
            ) from None
        return result_from_rows(rows, asks)

    def _run(self, part: StepTensors, rows: Float32, wanted: Int64) -> None:
        """Run one call and put its logits into `rows` at the indices `wanted`."""
        assert self._session is not None
        assert self._binding is not None
        inputs = {
            "token_ids": part.token_ids,
            "positions": part.positions,
            "query_start": part.query_start,
            "seq_lens": part.seq_lens,
            "block_tables": part.block_tables[0],
            "slot_mapping": part.slot_mapping[0],
            "logit_rows": part.logit_rows,
        }
        for name, values in inputs.items():
            self._binding.bind_cpu_input(name, np.ascontiguousarray(values))
        self._binding.bind_output("logits", "cpu")
        self._session.run_with_iobinding(self._binding)
        if len(wanted):
            rows[wanted] = self._binding.get_outputs()[-1].numpy()

    def _allocate_pools(self) -> list[Float32]:
        """Allocate a pool per layer; the system hands out its pages when they are first written."""
        (group,) = self.kv.groups
        shape = (self.limits.num_blocks, 2, group.num_kv_heads, self.kv.block_size, group.head_dim)
        try:
            return [np.zeros(shape, np.float32) for _ in group.layers]
        except MemoryError as error:
            size = self.limits.num_blocks * self.kv.bytes_per_block
            raise EngineError(
                f"there is no memory for {size} bytes of KV cache; compile with a smaller --kv-cache-bytes"
            ) from error

    def _bind_pools(self) -> "ort.IOBinding | None":
        assert self._session is not None
        binding = self._session.io_binding()
        for layer, pool in enumerate(self._pools):
            value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(pool, 1)
            binding.bind_ortvalue_input(f"kv_cache.{layer}", value)
            binding.bind_ortvalue_output(f"kv_cache_out.{layer}", value)
        return binding


def _session(artifact: Artifact, record: EngineRecord, num_threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.log_severity_level = 4
    options.add_session_config_entry(NO_QUANTIZED_REWRITES, "1")
    options.add_session_config_entry(WEIGHTS_ROOT, str(artifact.root.resolve()))
    try:
        return ort.InferenceSession(
            artifact.path(record.path).read_bytes(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:
        if isinstance(error, MemoryError) or any(sign in str(error) for sign in OUT_OF_MEMORY):
            raise EngineError(
                "memory ran out while the engine was loaded; close other programs or use a machine with more memory"
            ) from error
        built = artifact.manifest.tools.get("onnxruntime", "an unknown version")
        raise ArtifactError(
            f"ONNX Runtime {ort.__version__} refuses {record.path}, which was built with {built}: {error}"
        ) from error


def _check_fit(session: ort.InferenceSession, kv: KVGeometry, vocab_size: int) -> None:
    """Refuse an engine whose bindings are not those that the manifest speaks of.

    Raises:
        ArtifactError: names the binding.
    """
    expected: dict[str, list[Any]] = {"logits": ["J", vocab_size]}
    for group in kv.groups:
        shape = ["N", 2, group.num_kv_heads, kv.block_size, group.head_dim]
        is_fit = len(kv.groups) == 1 and group.dtype == "float32" and group.window is None
        expected |= {f"kv_cache.{layer}": shape if is_fit else [] for layer in group.layers}
    found = {value.name: value.shape for value in [*session.get_inputs(), *session.get_outputs()]}
    caches = {name for name in found if name.startswith("kv_cache.")}
    wrong = [name for name, shape in expected.items() if found.get(name) != shape]
    wrong += sorted(caches - set(expected))
    if wrong:
        raise ArtifactError(
            f"the engine's {wrong[0]} is not as its manifest says; compile the model again"
        )
