"""The machine and the requests that `builder simulate` plays: as said, measured from an artifact, or drawn."""

import time
from collections.abc import Mapping
from pathlib import Path

from builder.artifact.config import Limits
from builder.cli.display import Display
from builder.cli.runtimes import refuse_two_runtimes
from builder.cli.session import open_session
from builder.cli.simulation.options import Options
from triton_backend.config import EngineConfig
from triton_backend.simulation.arrivals import Arrival, draw_arrivals
from triton_backend.simulation.cost import CostModel, read_cost
from triton_backend.simulation.lengths import read_lengths
from triton_backend.simulation.measure import measure_cost, num_batches
from triton_backend.simulation.run import Machine
from triton_backend.simulation.trace import read_trace

LIMITS = {"max_seq_len": 2048, "max_num_seqs": 16, "max_num_tokens": 256, "kv_tokens": 32_768}
"""Limits that are not said, where no artifact says them."""
BLOCK_SIZE = 16


def read_machine(options: Options, config: EngineConfig, display: Display) -> Machine:
    """Give the machine: measured from an artifact, or as said.

    Raises:
        UserError: the costs or the artifact can't be used.
    """
    limits, block_size, cost = given_limits(options), BLOCK_SIZE, CostModel()
    if options.cost is not None:
        cost = read_cost(options.cost)
    if options.artifact is not None:
        limits, block_size, cost = measure(options, options.artifact, display)
    return Machine(
        limits,
        block_size,
        cost,
        config,
        lengths_known=options.lengths == "known",
        deadline_s=options.deadline,
    )


def measure(options: Options, artifact: Path, display: Display) -> tuple[Limits, int, CostModel]:
    """Measure the steps of an artifact's engine; its limits hold where the options don't say others."""
    refuse_two_runtimes()
    with open_session(
        artifact, display=display, target=options.target, threads=options.threads
    ) as model:
        executor = model.executor
        with display.progress() as progress:
            progress.stage("measure", num_batches(executor))
            cost = measure_cost(executor, clock=time.perf_counter, on_batch=progress.advance)
        limits, block_size = executor.limits, executor.kv.block_size
    own = {
        "max_seq_len": limits.max_seq_len,
        "max_num_seqs": limits.max_num_seqs,
        "max_num_tokens": limits.max_num_tokens,
        "kv_tokens": (limits.num_blocks - 1) * block_size,
    }
    return given_limits(options, own, block_size), block_size, cost


def given_limits(
    options: Options, otherwise: Mapping[str, int] = LIMITS, block_size: int = BLOCK_SIZE
) -> Limits:
    """Give the limits that the options say, and others where they say none."""
    said = {name: getattr(options, name) for name in otherwise}
    known = {name: otherwise[name] if value is None else value for name, value in said.items()}
    return Limits(
        max_seq_len=known["max_seq_len"],
        max_num_seqs=known["max_num_seqs"],
        max_num_tokens=max(known["max_num_tokens"], known["max_num_seqs"]),
        max_logit_rows=known["max_num_seqs"],
        num_blocks=1 + max(1, known["kv_tokens"] // block_size),
    )


def read_arrivals(options: Options, limits: Limits) -> list[Arrival]:
    """Give the requests, drawn or from the trace.

    Raises:
        UserError: the trace or a distribution can't be read.
    """
    if options.trace is not None:
        return read_trace(options.trace)
    return draw_arrivals(
        options.requests,
        prompt=read_lengths(options.prompt),
        answer=read_lengths(options.answer),
        max_seq_len=limits.max_seq_len,
        seed=options.seed,
        num_tenants=options.tenants,
    )
