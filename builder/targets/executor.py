"""The running half of a target: one call per engine step.

An executor owns the KV pools and the loaded engine. It knows tokens, slots and blocks; it knows
nothing of requests, text or scheduling. It is used by one thread.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from builder.artifact.config import KVGeometry, Limits
from builder.artifact.step import Float32, Int32, Likeliest, RowAsks, StepResult, StepTensors
from builder.errors import EngineError

INT32, FLOAT32 = np.dtype(np.int32), np.dtype(np.float32)


class Executor(Protocol):
    """Runs steps of one loaded engine."""

    @property
    def limits(self) -> Limits:
        """What the engine was compiled for; `num_blocks` is the pool that was really allocated."""
        ...

    @property
    def kv(self) -> KVGeometry:
        """How its KV memory is cut."""
        ...

    @property
    def vocab_size(self) -> int:
        """V."""
        ...

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """Run one step: do the block copies, write KV, and give what is asked for each logit row.

        Raises:
            EngineError: the step is beyond `limits`, has an empty sequence, or the engine failed.
        """
        ...

    def close(self) -> None:
        """Free the engine and its pools; further steps are errors. Closing twice is allowed."""
        ...


class LentExecutor:
    """An executor in other hands, who may change what they see of it. It owns nothing: closing is its owner's."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    @property
    def limits(self) -> Limits:
        """See `Executor.limits`."""
        return self._executor.limits

    @property
    def kv(self) -> KVGeometry:
        """See `Executor.kv`."""
        return self._executor.kv

    @property
    def vocab_size(self) -> int:
        """V."""
        return self._executor.vocab_size

    def execute(self, step: StepTensors, asks: RowAsks) -> StepResult:
        """See `Executor.execute`."""
        return self._executor.execute(step, asks)

    def close(self) -> None:
        """Leave the executor open."""


def result_from_rows(rows: Float32, asks: RowAsks) -> StepResult:
    """Answer `asks` from full logit rows `[J, V]`, on the host.

    Rows are answered one by one, so that one row's work stays in the cache of a core, and none depends
    on another.
    """
    count = min(asks.num_candidates, rows.shape[1])
    ids = np.empty((len(rows), count), np.int32)
    logits = np.empty((len(rows), count), np.float32)
    sums = np.zeros(len(rows), np.float32)
    for j, row in enumerate(rows):
        if count:
            ids[j], logits[j] = _ranked(row, count)
        if asks.temperatures[j] > 0:
            sums[j] = _logsumexp(row, float(asks.temperatures[j]))
    return StepResult(
        argmax=_argmax(rows),
        candidate_ids=ids,
        candidate_logits=logits,
        logsumexp=sums,
        full_row=lambda j: rows[j],
        likeliest=likeliest_of(lambda j: rows[j]),
    )


def likeliest_of(full_row: Callable[[int], Float32]) -> Likeliest:
    """Rank full rows on the host."""

    def likeliest(rows: Sequence[int], num_candidates: int) -> tuple[Int32, Float32]:
        ids = np.empty((len(rows), num_candidates), np.int32)
        logits = np.empty((len(rows), num_candidates), np.float32)
        for index, j in enumerate(rows):
            ids[index], logits[index] = _ranked(full_row(j), num_candidates)
        return ids, logits

    return likeliest


def _argmax(rows: Float32) -> Int32:
    """Give the id of the largest logit of rows `[J, V]`; -1 where that is not a finite number."""
    ids = rows.argmax(axis=1)  # the first NaN, where there is one
    is_number = np.isfinite(rows[np.arange(len(rows)), ids])
    return np.where(is_number, ids, -1).astype(np.int32)


def _ranked(row: Float32, count: int) -> tuple[Int32, Float32]:
    """Ids of the `count` largest entries of `row` `[V]`, largest first, ties by lower id; and the entries.

    The N-th best of the maxima of some 4 N groups bounds them: N entries are not below it, and few more are.
    A group is a column of the row laid out in lines: the maxima of columns take a tenth of the time of
    those of lines. "Not below" instead of "at least": so a row with NaN gives candidates too, and its
    log-sum-exp tells.
    """
    num_lines = max(1, len(row) // (4 * count))
    num_groups = len(row) // num_lines
    peaks = row[: num_lines * num_groups].reshape(num_lines, num_groups).max(axis=0)
    bound = np.partition(peaks, -count)[-count]
    among = np.flatnonzero(~(row < bound))
    keys = _falling(row[among]) << np.uint64(32) | among.astype(np.uint64)
    keys.sort()  # no two are alike: a stable sort, of which numpy has only a slow one, is not needed
    best: Int32 = keys[:count].astype(np.uint32).astype(np.int32)
    return best, row[best]


def _falling(logits: Float32) -> NDArray[np.uint64]:
    """Give integers that fall as logits rise; equal logits, as 0 and -0 are, have equal ones."""
    bits = (logits + np.float32(0)).view(np.uint32)
    is_negative = bits >> 31 == 1
    return np.where(is_negative, bits, ~bits & np.uint32(0x7FFFFFFF)).astype(np.uint64)


def _logsumexp(row: Float32, temperature: float) -> float:
    """Log-sum-exp of `row / temperature` over V, accumulated in float64. NaN if a logit is no number."""
    peak = float(row.max())
    with np.errstate(invalid="ignore"):  # infinite less infinite: the sum is NaN, as it should be
        scaled = row - np.float32(peak)
    scaled /= np.float32(temperature)
    np.exp(scaled, out=scaled)
    return peak / temperature + float(np.log(scaled.sum(dtype=np.float64)))


def check_step(step: StepTensors, asks: RowAsks, *, limits: Limits, kv: KVGeometry) -> None:
    """Refuse a step that breaks the contract or goes beyond the limits, before anything trusts a number of it.

    Raises:
        EngineError: names what is wrong.
    """
    _check_arrays(step, asks, len(kv.groups))
    starts, slots = step.query_start, step.slot_mapping.ravel()
    num_tokens, num_seqs = len(step.token_ids), len(step.seq_lens)
    # Reductions without their methods' detour through Python: every step comes by here.
    is_ascending = num_seqs and np.logical_and.reduce(starts[1:] > starts[:-1])
    if not is_ascending or starts[0] != 0 or starts[-1] != num_tokens:
        raise EngineError("a step has an empty sequence, or tokens that belong to none")
    sizes = (
        ("tokens", num_tokens, limits.max_num_tokens),
        ("sequences", num_seqs, limits.max_num_seqs),
        ("logit rows", len(step.logit_rows), limits.max_logit_rows),
        ("tokens of the longest sequence", np.maximum.reduce(step.seq_lens), limits.max_seq_len),
    )
    for name, size, limit in sizes:
        if size > limit:
            raise EngineError(f"a step has {size} {name}; the engine was compiled for {limit}")
    first, end = kv.block_size, limits.num_blocks * kv.block_size
    if np.minimum.reduce(slots) < first or np.maximum.reduce(slots) >= end:
        raise EngineError("a step writes to a slot outside the pool, or to the reserved block")


def _check_arrays(step: StepTensors, asks: RowAsks, num_groups: int) -> None:
    """Refuse arrays of another type or shape than is due, and a number of candidates that is none."""
    tokens, seqs, rows = map(_size, (step.token_ids, step.seq_lens, step.logit_rows))
    due = (
        ("token_ids", step.token_ids, INT32, (tokens,)),
        ("positions", step.positions, INT32, (tokens,)),
        ("seq_lens", step.seq_lens, INT32, (seqs,)),
        ("query_start", step.query_start, INT32, (seqs + 1,)),
        (
            "block_tables",
            step.block_tables,
            INT32,
            (num_groups, seqs, _size(step.block_tables, -1)),
        ),
        ("slot_mapping", step.slot_mapping, INT32, (num_groups, tokens)),
        ("logit_rows", step.logit_rows, INT32, (rows,)),
        ("block_copies", step.block_copies, INT32, (_size(step.block_copies), 3)),
        ("temperatures", asks.temperatures, FLOAT32, (rows,)),
    )
    for name, array, dtype, shape in due:
        if not isinstance(array, np.ndarray) or array.dtype != dtype or array.shape != shape:
            found = (
                f"{array.dtype} of shape {array.shape}" if hasattr(array, "dtype") else "no array"
            )
            raise EngineError(f"bad step: {name} is {found}, not {dtype} of {shape}")
    if step.adapter_slots is not None:
        raise EngineError("bad step: adapter_slots are given; this engine has no adapters")
    if not isinstance(asks.num_candidates, int) or asks.num_candidates < 0:
        raise EngineError(
            f"bad step: num_candidates is {asks.num_candidates}, not a whole number from 0 on"
        )


def _size(array: object, axis: int = 0) -> int:
    """Give a size of an array; 0 where it has none, which shows when its shape is compared."""
    shape: tuple[int, ...] = getattr(array, "shape", ())
    return shape[axis] if shape else 0
